"""Creates the internal topics of an application, and deletes processed records from them.

Source: Kafka 3.9 InternalTopicManager, RepartitionTopicConfig and TaskManager.maybePurgeCommittedRecords.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any

from zkconsumer.errors import BrokerUnavailableError, StreamsError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.retry import polling
from zkconsumer.spark.streams.admin_requests import TIMEOUT_S, wait_for_error

#: Configuration of internal topics. Only the application deletes records from them.
_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
    "segment.bytes": str(50 << 20),
}
#: Seconds between two checks whether topics were deleted.
_POLL_S = 0.2


class InternalTopics:
    """Creates internal topics, and deletes processed records from them. Runs in the driver; not thread-safe.

    Args:
        client: function that returns the librdkafka client configuration. If it changes, the next request uses a new
            client.
        application: application id, for log events.
        names: names of the internal topics.
        purge_interval_ms: minimum interval between two deletions, in milliseconds.
    """

    def __init__(
        self, client: Callable[[], Mapping[str, Any]], application: str, names: Collection[str], purge_interval_ms: int
    ) -> None:
        self._client, self._names = client, frozenset(names)
        self._opened: tuple[Mapping[str, Any], Any] | None = None
        self._interval_s, self._next_purge = purge_interval_ms / 1_000, 0.0
        self._pending: Mapping[Any, Future[Any]] = {}
        self._reported: set[tuple[str, str]] = set()
        self._log = get_logger("zkconsumer.spark").bind(group=application)

    @property
    def _admin(self) -> Any:
        """The admin client, which is created on first use: applications without internal topics do not need it."""
        from confluent_kafka.admin import AdminClient  # requires the ``topology`` extra

        client = dict(self._client())
        if self._opened is None or self._opened[0] != client:
            self._opened = client, AdminClient(client)
        return self._opened[1]

    def create(self, topics: Mapping[str, int]) -> None:
        """Create topics with the brokers' default replication factor; existing topics are not changed.

        A topic that is being deleted still exists.

        Args:
            topics: number of partitions by topic.

        Raises:
            StreamsError: a topic could not be created.
            BrokerUnavailableError: the brokers did not respond.
        """
        from confluent_kafka import KafkaError
        from confluent_kafka.admin import NewTopic

        new = [NewTopic(topic, count, -1, config=_CONFIG) for topic, count in sorted(topics.items())]
        timeouts = {"operation_timeout": TIMEOUT_S, "request_timeout": TIMEOUT_S}
        requests = self._admin.create_topics(new, **timeouts) if new else {}
        for topic, created in requests.items():
            error = wait_for_error(created, f"creation of internal topic {topic!r}")
            if error is None:
                self._log.info("internal_topic_created", topic=topic, partition_count=topics[topic])
            elif error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise StreamsError(
                    f"creation of internal topic {topic!r} failed: {error.name()} ({error.code()}): {error.str()}; "
                    f"create it: {format_creation_command(topic, topics[topic])}"
                )

    def purge(self, ends: Mapping[TopicPartition, int]) -> None:
        """Delete processed records if the interval has elapsed and no request is pending; a later call logs errors.

        Args:
            ends: offset after the last processed record of each partition; topics that are not internal are ignored.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as Position

        if time.monotonic() < self._next_purge or not all(one.done() for one in self._pending.values()):
            return
        self._report_failures()
        self._next_purge = time.monotonic() + self._interval_s
        internal = {one: offset for one, offset in ends.items() if one.topic in self._names and offset > 0}
        positions = [Position(one.topic, one.partition, offset) for one, offset in internal.items()]
        try:
            self._pending = self._admin.delete_records(positions, request_timeout=TIMEOUT_S) if positions else {}
        except KafkaException as error:
            self._report("", error)

    def delete(self, find_topics: Callable[[Collection[str]], Collection[str]]) -> list[str]:
        """Delete the internal topics, wait until they no longer exist, and return the names of the deleted topics.

        Args:
            find_topics: function that returns which topics exist; see ``ApplicationCluster.find_topics``.

        Raises:
            BrokerUnavailableError: a topic could not be deleted.
        """
        from confluent_kafka import KafkaError

        deleted, names = [], sorted(self._names)
        timeouts = {"operation_timeout": TIMEOUT_S, "request_timeout": TIMEOUT_S}
        for topic, request in (self._admin.delete_topics(names, **timeouts) if names else {}).items():
            error = wait_for_error(request, f"deletion of internal topic {topic!r}")
            if error is None:
                deleted.append(topic)
            elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise BrokerUnavailableError(f"internal topic {topic!r} was not deleted: {error.str()}")
        self._wait_for_deletion(find_topics)
        return deleted

    def _wait_for_deletion(self, find_topics: Callable[[Collection[str]], Collection[str]]) -> None:
        """Wait until the topics no longer exist, so that the next start creates them again.

        Raises:
            BrokerUnavailableError: a topic still exists after 30 s.
        """

        def are_deleted() -> bool:
            return not find_topics(self._names)

        if self._names and not polling(TIMEOUT_S, interval_s=_POLL_S, stop=threading.Event())(are_deleted):
            raise BrokerUnavailableError(
                f"internal topics {', '.join(sorted(self._names))} still exist {TIMEOUT_S:g} s after the request to "
                "delete them; check delete.topic.enable of the brokers, and call clean_up() again"
            )

    def _report_failures(self) -> None:
        """Log why records were not deleted, once for each topic and reason."""
        for position, deleted in self._pending.items():
            error = deleted.exception()
            if error is not None:
                self._report(position.topic, error)

    def _report(self, topic: str, error: BaseException) -> None:
        cause: Any = error.args[0] if error.args else error
        reason = f"{cause.name()} ({cause.code()}): {cause.str()}" if hasattr(cause, "code") else str(error)
        if (topic, reason) not in self._reported:
            self._reported.add((topic, reason))
            self._log.warning("internal_records_not_deleted", topic=topic, error=reason)


def format_creation_command(topic: str, partitions: int) -> str:
    """Return the command that creates an internal topic."""
    return (
        f"kafka-topics.sh --bootstrap-server HOST:PORT --create --topic {topic} --partitions {partitions} "
        + " ".join(f"--config {name}={value}" for name, value in _CONFIG.items())
    )
