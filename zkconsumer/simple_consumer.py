"""SimpleConsumer: the low-level consumer, which reads from one broker and does not join a group.

Source: Kafka 1.1 kafka.consumer.SimpleConsumer. This module is not part of ``broker``, because it decodes messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from zkconsumer.argument_checks import (
    check_flag,
    check_integer,
    check_offsets,
    check_partition,
    check_topic_partition,
    check_type,
)
from zkconsumer.broker import protocol
from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.error_codes import broker_error
from zkconsumer.broker.fetch_request import FetchRequest
from zkconsumer.broker.security import PLAINTEXT, Security
from zkconsumer.config.types import INT_MAX, LONG_MAX
from zkconsumer.errors import (
    BrokerUnavailableError,
    ConfigurationError,
    CorruptRecordError,
    MessageSizeTooLargeError,
)
from zkconsumer.fetcher.batch_headers import make_checked_chunk
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.decode import MAX_ROWS, read_messages
from zkconsumer.log_ends import EARLIEST, LATEST
from zkconsumer.message import Endpoint, MessageAndMetadata, TopicPartition

_T = TypeVar("_T")

#: Special timestamps for ``offset_for_time`` and ``earliest_or_latest_offset``. Source: kafka.api.OffsetRequest.
EARLIEST_TIME, LATEST_TIME = EARLIEST, LATEST


@dataclass(frozen=True, slots=True)
class FetchedMessages:
    """Result of a fetch.

    Attributes:
        messages: messages in log order; may be empty.
        next_offset: offset for the next fetch.
        high_watermark: high watermark; consumers can read only messages below it.
    """

    messages: list[MessageAndMetadata]
    next_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Broker ids of a partition's leader (None if there is none), replicas and in-sync replicas."""

    partition: TopicPartition
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class SimpleConsumer:
    """Low-level consumer with a connection to one broker; used by one thread.

    If the broker closed the connection since the last request, the consumer connects again and repeats the request
    once.

    Each request raises ``NotLeaderError`` if another broker is the partition leader, ``BrokerUnavailableError`` if the
    broker does not respond, ``AuthorizationError`` if the client is not authorized, and ``RetriableError`` for
    most other broker errors.

    Args:
        so_timeout_ms: maximum milliseconds to wait for a response.
        buffer_size: socket receive buffer size in bytes; -1 for the operating system's default.
        client_id: client id sent with each request.
        security: TLS and SASL settings, see ``zkconsumer.broker.security``.
    """

    def __init__(
        self,
        host: str,
        port: int,
        so_timeout_ms: int = 30_000,
        buffer_size: int = -1,
        client_id: str = "zkconsumer",
        security: Security = PLAINTEXT,
    ) -> None:
        check_type("host", host, str, "a str")
        check_type("client_id", client_id, str, "a str")
        check_type("security", security, Security, "a Security")
        timeout_s = check_integer("so_timeout_ms", so_timeout_ms, 1, INT_MAX) / 1000
        connecting = Connecting(client_id, timeout_s, security, check_integer("buffer_size", buffer_size, -1, INT_MAX))
        self._channel = connecting.channel(Endpoint(host, check_integer("port", port, 1, 65_535)))

    def __enter__(self) -> SimpleConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection permanently."""
        self._channel.close()

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        fetch_size: int = 1 << 20,
        *,
        max_wait_ms: int = 100,
        min_bytes: int = 1,
        read_committed: bool = False,
        check_crcs: bool = True,
    ) -> FetchedMessages:
        """Return the messages starting at ``offset`` that fit in ``fetch_size`` bytes; none at the end of the log.

        Args:
            offset: offset of the first message.
            fetch_size: maximum size of the messages in the response, in bytes. Kafka 0.10.1 and later return the first
                batch completely, even if it is larger.
            max_wait_ms: maximum milliseconds that the broker waits for ``min_bytes``.
            min_bytes: minimum bytes that the broker returns before ``max_wait_ms`` expires.
            read_committed: whether to stop at the first open transaction, and skip messages of aborted transactions.
            check_crcs: whether to verify the checksums.

        Raises:
            OffsetOutOfRangeError: the offset is not in the log.
            MessageSizeTooLargeError: the first message is larger than ``fetch_size``, and the broker truncated it.
            CorruptRecordError: the first message is corrupt; messages before a later corrupt message are returned.
        """
        topic_partition = check_partition(topic, partition)
        offset = check_integer("offset", offset, -LONG_MAX, LONG_MAX)
        read_committed = check_flag("read_committed", read_committed)
        check_crcs = check_flag("check_crcs", check_crcs)
        request = FetchRequest(
            {topic_partition: (offset, check_integer("fetch_size", fetch_size, 0, INT_MAX))},
            max_wait_ms=check_integer("max_wait_ms", max_wait_ms, 0, INT_MAX),
            min_bytes=check_integer("min_bytes", min_bytes, 0, INT_MAX),
            read_committed=read_committed,
        )
        data = self._send_fetch(request, topic_partition, offset)
        if not len(data.records):
            return FetchedMessages([], offset, data.high_watermark)
        chunk = make_checked_chunk(
            data,
            offset,
            lambda: self.earliest_or_latest_offset(topic, partition, LATEST_TIME),
            aborted=data.aborted,
        )
        if chunk.next_offset == offset and chunk.damage is None and len(data.records) >= fetch_size:
            raise MessageSizeTooLargeError(
                f"message at offset {offset} of {topic_partition} is larger than fetch_size = {fetch_size} bytes"
            )
        messages, next_offset = _read_valid_messages(chunk, check_crcs)
        return FetchedMessages(messages, next_offset, data.high_watermark)

    def _send_fetch(self, request: FetchRequest, partition: TopicPartition, offset: int) -> protocol.PartitionData:
        with self._channel.exchange(request) as frame:
            response = protocol.read_fetch_response(frame, request.version)
        operation = f"fetch {partition} from offset {offset}"
        self._check(response.error_code, operation)
        if [data.partition for data in response.partitions] != [partition]:
            raise BrokerUnavailableError(
                f"broker {self._channel.endpoint} returned unexpected partitions for {operation!r}"
            )
        [data] = response.partitions
        self._check(data.error_code, operation)
        return data

    def earliest_or_latest_offset(self, topic: str, partition: int, earliest_or_latest: int) -> int:
        """Return the log start offset (``EARLIEST_TIME``) or the end offset (``LATEST_TIME``)."""
        if earliest_or_latest not in (EARLIEST_TIME, LATEST_TIME):
            raise ConfigurationError(
                f"earliest_or_latest must be EARLIEST_TIME (-2) or LATEST_TIME (-1), got {earliest_or_latest!r}"
            )
        return self.offset_for_time(topic, partition, earliest_or_latest)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """Return the offset of the first record at or after ``timestamp_ms``, -1 if there is none.

        Brokers before 0.10.1 use only segment modification times. They return the base offset of the last segment that
        was modified at or before ``timestamp_ms``.

        Args:
            timestamp_ms: milliseconds since the epoch, ``EARLIEST_TIME`` or ``LATEST_TIME``.
        """
        topic_partition = check_partition(topic, partition)
        timestamp_ms = check_integer("timestamp_ms", timestamp_ms, -LONG_MAX, LONG_MAX)
        offsets = protocol.parse_list_offsets_response(
            self._channel.request(protocol.list_offsets_request([topic_partition], timestamp_ms))
        )
        error_code, offset = offsets.get(topic_partition, (protocol.UNKNOWN_SERVER_ERROR, -1))
        self._check(error_code, f"look up the offset of {topic_partition} at {timestamp_ms}")
        return offset

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, storage: str = "kafka") -> None:
        """Commit a group's offsets; with storage ``kafka``, this broker must be the group's coordinator.

        Args:
            offsets: next offset to consume, by partition.
            storage: ``kafka``, or ``zookeeper`` with brokers up to 3.9, which write the offset znodes for the client.
        """
        check_type("group", group, str, "a str")
        offsets = check_offsets(offsets, LONG_MAX)
        request = protocol.offset_commit_request(group, offsets, version=_request_version(storage))
        for partition, code in protocol.parse_offset_commit_response(self._channel.request(request)).items():
            self._check(code, f"commit offset {offsets[partition]} of {partition}")

    def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, storage: str = "kafka"
    ) -> dict[TopicPartition, int]:
        """Return a group's committed offsets, -1 for partitions without one; see ``commit_offsets``."""
        check_type("group", group, str, "a str")
        partitions = [check_topic_partition(partition) for partition in _check_list("partitions", partitions)]
        request = protocol.offset_fetch_request(group, partitions, version=_request_version(storage))
        committed, errors = protocol.parse_offset_fetch_response(self._channel.request(request))
        found = {partition: offset for partition, (offset, _) in committed.items()}
        for partition, code in errors.items():
            if code == protocol.UNKNOWN_TOPIC_OR_PARTITION and partition is not None and storage == "zookeeper":
                found[partition] = -1  # the offset znode does not exist
            else:
                self._check(code, f"fetch the offset of {partition or group}")
        return found

    def metadata(self, topics: Iterable[str]) -> dict[str, list[PartitionMetadata]]:
        """Return the partitions of each topic; topics that do not exist are omitted.

        Raises:
            TopicAuthorizationError: the client is not authorized to describe one of the topics.
        """
        topics = _check_list("topics", topics)
        for topic_name in topics:
            check_type("a topic", topic_name, str, "a str")
        response = self._channel.request(protocol.metadata_request(topics))
        for topic in response.topics:
            if topic.error_code not in (protocol.UNKNOWN_TOPIC_OR_PARTITION, protocol.LEADER_NOT_AVAILABLE):
                self._check(topic.error_code, f"describe topic {topic.name!r}")
        return {
            topic.name: [
                PartitionMetadata(
                    TopicPartition(topic.name, p.partition_index),
                    p.leader_id if p.leader_id >= 0 else None,
                    tuple(p.replica_nodes),
                    tuple(p.isr_nodes),
                )
                for p in sorted(topic.partitions, key=lambda p: int(p.partition_index))
            ]
            for topic in response.topics
            if topic.partitions
        }

    def brokers(self) -> dict[int, Endpoint]:
        """Return the cluster's brokers by id."""
        response = self._channel.request(protocol.metadata_request([]))
        return {b.node_id: Endpoint(b.host, b.port) for b in response.brokers}

    def find_coordinator(self, group: str) -> Endpoint:
        """Return the group's coordinator, the broker that stores its offsets."""
        check_type("group", group, str, "a str")
        response = self._channel.request(protocol.find_coordinator_request(group))
        self._check(response.error_code, f"find the coordinator of group {group!r}")
        return Endpoint(response.host, response.port)

    def _check(self, code: int, operation: str) -> None:
        if not code:
            return
        raise broker_error(code, f"broker {self._channel.endpoint} could not {operation}")


def _check_list(name: str, values: Iterable[_T]) -> list[_T]:
    """Return the values as a list; a str, bytes or ``TopicPartition`` is not a list of values."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | TopicPartition):
        raise ConfigurationError(f"{name} must be a list, got {values!r}")
    return list(values)


def _read_valid_messages(chunk: Chunk, check_crcs: bool) -> tuple[list[MessageAndMetadata], int]:
    """Return the messages before the first corrupt batch, and the offset after them.

    Raises:
        CorruptRecordError: there are no messages before the first corrupt batch.
    """
    messages: list[MessageAndMetadata] = []
    try:
        for found, _ in read_messages(chunk, check_crcs=check_crcs, max_rows=MAX_ROWS):
            messages += found
    except CorruptRecordError as error:
        if not messages:
            raise
        return messages, error.offset
    return messages, chunk.next_offset


def _request_version(storage: str) -> int | None:
    if storage not in ("kafka", "zookeeper"):
        raise ConfigurationError(f"storage must be 'kafka' or 'zookeeper', got {storage!r}")
    return 0 if storage == "zookeeper" else None


__all__ = ["EARLIEST_TIME", "LATEST_TIME", "FetchedMessages", "PartitionMetadata", "SimpleConsumer"]
