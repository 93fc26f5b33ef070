"""The interface of cluster metadata: brokers, topics and partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from zkconsumer.health import Problem
from zkconsumer.message import Endpoint


class FoundTopics(NamedTuple):
    """The result of a lookup of topic ids. Topics in neither attribute are missing, perhaps only for a short time.

    Attributes:
        ids: the id of each topic that exists or may exist, "" if it is unknown; see ``topic_id``.
        deleted: topics that do not exist.
    """

    ids: dict[str, str]
    deleted: set[str]


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

    def look_up_topic_ids(self, topics: Sequence[str]) -> FoundTopics:
        """Look up the ids of topics, without watches.

        One other thread than that of the other methods may call it.
        """

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The id of each topic in the last result of ``partitions``; see ``topic_id``. Any thread may read it."""

    @property
    def problems(self) -> Mapping[str, Problem]:
        """Why the last known partitions of a topic are used, by topic. Any thread may read it."""

    @property
    def poll_interval_s(self) -> float | None:
        """Seconds between two requests for partitions; None if changes are reported by watches."""

    def close(self) -> None:
        """Interrupt requests in flight, and send no more."""
