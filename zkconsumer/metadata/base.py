"""The interface of cluster metadata: brokers, topics and partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from zkconsumer.health import Problem
from zkconsumer.message import Endpoint


class Cluster(Protocol):
    """The brokers, topics and partitions of a cluster. All members of a group must see the same partitions."""

    def brokers(self) -> list[Endpoint]:
        """Return the live brokers, or the bootstrap servers."""

    def topics(self) -> list[str]:
        """Return the sorted names of all topics, and watch for created and deleted ones."""

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Return the sorted partitions of each topic that exists, and watch for changes.

        Raises:
            TopicAuthorizationError: the client may not describe a topic whose partitions are not known.
        """

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The id of each topic in the last result of ``partitions``; see ``topic_id``. Any thread may read it."""

    @property
    def problems(self) -> Mapping[str, Problem]:
        """Why the last known partitions of a topic are used, by topic. Any thread may read it."""

    @property
    def poll_interval(self) -> float | None:
        """Seconds between two requests for partitions; None if changes are reported by watches."""

    def close(self) -> None:
        """Interrupt requests in flight, and send no more."""
