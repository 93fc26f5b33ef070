"""The interface to cluster metadata: brokers, topics and partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from zkconsumer.health import Problem
from zkconsumer.message import Endpoint


class FoundTopics(NamedTuple):
    """Result of a topic id lookup; a topic in neither attribute was not found, but its deletion is not confirmed.

    Attributes:
        ids: ids of topics that exist or may exist, by topic; ``""`` if the id is unknown. See ``topic_id``.
        deleted: topics that do not exist.
    """

    ids: dict[str, str]
    deleted: set[str]


class Cluster(Protocol):
    """Metadata of a Kafka cluster. All members of a group must see the same partitions."""

    def brokers(self) -> list[Endpoint]:
        """Return the brokers to which requests may be sent, in the order in which to try them. Any thread may call it.

        With ZooKeeper, these are the registered brokers in random order. Otherwise, they are the brokers named by the
        last Metadata response, followed by the bootstrap servers.
        """

    def topics(self) -> list[str]:
        """Return the sorted names of all topics; with ZooKeeper, also watch for created and deleted topics."""

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Return the sorted partitions of each existing topic; with ZooKeeper, also watch for changes.

        Raises:
            TopicAuthorizationError, RetriableError: the partitions of a topic are unknown, because the client is not
                authorized to describe it, or because its metadata is unavailable.
        """

    def look_up_topic_ids(self, topics: Sequence[str]) -> FoundTopics:
        """Look up topic ids, without setting watches.

        One additional thread may call it concurrently with the other methods.
        """

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Topic ids found by the last ``partitions`` call; see ``topic_id``. May be read from any thread."""

    @property
    def problems(self) -> Mapping[str, Problem]:
        """Lookup problems by topic; the last known partitions of these topics are used. May be read from any thread."""

    @property
    def poll_interval_s(self) -> float | None:
        """Metadata polling interval in seconds; None if watches report changes."""

    def close(self) -> None:
        """Close the connections that this object opened: abort in-flight requests, and reject new ones."""
