"""SimpleConsumer: the low-level consumer of one broker, without a group.

Source: Kafka 1.1 kafka.consumer.SimpleConsumer. It stands beside the high-level consumer, not in ``broker``, because
it hands out decoded messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType

from kafka import errors as kafka_errors

from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.security import PLAINTEXT, Security
from zkconsumer.errors import (
    ConfigurationError,
    CorruptRecordError,
    MessageSizeTooLargeError,
    NotLeaderError,
    OffsetOutOfRangeError,
    RetriableError,
    ZkConsumerError,
)
from zkconsumer.fetcher.chunk import NO_LIMIT, Chunk
from zkconsumer.fetcher.decode import native, read_messages
from zkconsumer.message import Endpoint, MessageAndMetadata, TopicPartition

#: Times for ``offset_before``. Source: kafka.api.OffsetRequest.
EARLIEST_TIME, LATEST_TIME = protocol.EARLIEST, protocol.LATEST


@dataclass(frozen=True, slots=True)
class FetchedMessages:
    """What a fetch brought: messages, where to go on, and where the log ends for consumers."""

    messages: list[MessageAndMetadata]
    next_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Where a partition is: node ids of its leader (None where there is none), replicas and in-sync replicas."""

    partition: TopicPartition
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class SimpleConsumer:
    """One connection to one broker; used by one thread.

    Args:
        so_timeout_ms: how long an answer may take.
        buffer_size: bytes of the socket's receive buffer; -1 leaves it to the system.
        security: TLS and SASL, see ``zkconsumer.broker.security``.

    Each call raises ``NotLeaderError`` where another broker leads the partition, ``BrokerUnavailableError`` where this
    one does not answer, and ``ZkConsumerError`` with the broker's reason otherwise.
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
        self._channel = BrokerChannel(
            Endpoint(host, port),
            client_id,
            timeout=so_timeout_ms / 1000,
            receive_buffer=buffer_size,
            security=security,
        )

    def __enter__(self) -> SimpleConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection for good."""
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
        """Return the messages from ``offset`` on, as many as fit in ``fetch_size`` bytes; none at the end of the log.

        Raises:
            OffsetOutOfRangeError: the log does not hold the offset.
            MessageSizeTooLargeError: the first message does not fit, and the broker does not send it whole.
            CorruptRecordError: the first message is damaged; one further on ends the answer before it.
        """
        asked = TopicPartition(topic, partition)
        request = protocol.fetch_request(
            {asked: offset},
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            partition_max_bytes=fetch_size,
            read_committed=read_committed,
        )
        with self._channel.exchange(request) as frame:
            answer = protocol.read_fetch_answer(frame, request.API_VERSION)
        self._check(answer.error_code, f"fetch {asked} from offset {offset}")
        [data] = answer.partitions
        self._check(data.error_code, f"fetch {asked} from offset {offset}")
        if not len(data.records):
            return FetchedMessages([], offset, data.high_watermark)
        next_offset, complete = native.next_offset(data.records)
        if not complete and len(data.records) >= fetch_size:
            raise MessageSizeTooLargeError(
                f"the message at offset {offset} of {asked} is larger than {fetch_size} bytes"
            )
        messages: list[MessageAndMetadata] = []
        chunk = Chunk(asked, offset, next_offset, data.records, data.aborted)
        try:
            for found, _ in read_messages(chunk, check_crcs=check_crcs, max_rows=NO_LIMIT):
                messages += found
        except CorruptRecordError as error:
            if not messages:
                raise
            next_offset = error.offset
        return FetchedMessages(messages, next_offset, data.high_watermark)

    def earliest_or_latest_offset(self, topic: str, partition: int, earliest_or_latest: int) -> int:
        """Return the first offset of the log, or the one after its last: ``EARLIEST_TIME`` or ``LATEST_TIME``."""
        if earliest_or_latest not in (EARLIEST_TIME, LATEST_TIME):
            raise ConfigurationError(f"{earliest_or_latest} is neither EARLIEST_TIME (-2) nor LATEST_TIME (-1)")
        return self.offset_for_time(topic, partition, earliest_or_latest)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """Return the first offset at or after a time, -1 where there is none.

        Brokers before 0.10.1 know the times of their files only: they return the start of the last one that was
        closed before that time.
        """
        asked = TopicPartition(topic, partition)
        answer = protocol.read_offsets_answer(
            self._channel.request(protocol.list_offsets_request([asked], timestamp_ms))
        )
        error, offset = answer.get(asked, (-1, -1))
        self._check(error, f"tell the offset of {asked} at {timestamp_ms}")
        return offset

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, storage: str = "kafka") -> None:
        """Store a group's offsets; in Kafka this broker has to be its coordinator.

        Args:
            storage: ``kafka``, or ``zookeeper``, which brokers up to 3.9 write on behalf of the client.
        """
        request = protocol.offset_commit_request(group, offsets, version=_version(storage))
        for partition, code in protocol.read_offset_commit_answer(self._channel.request(request)).items():
            self._check(code, f"commit offset {offsets[partition]} of {partition}")

    def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, storage: str = "kafka"
    ) -> dict[TopicPartition, int]:
        """Return a group's offsets, -1 where there is none; see ``commit_offsets``."""
        request = protocol.offset_fetch_request(group, partitions, version=_version(storage))
        found, errors = protocol.read_offset_fetch_answer(self._channel.request(request))
        for partition, code in errors.items():
            if code == protocol.UNKNOWN_TOPIC_OR_PARTITION and partition is not None and storage == "zookeeper":
                found[partition] = -1  # how the broker says that the znode is missing
            else:
                self._check(code, f"fetch the offset of {partition or group}")
        return found

    def metadata(self, topics: Iterable[str]) -> dict[str, list[PartitionMetadata]]:
        """Return where the partitions of each topic are; a topic that does not exist is left out."""
        answer = self._channel.request(protocol.metadata_request(topics))
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
            for topic in answer.topics
            if topic.partitions
        }

    def brokers(self) -> dict[int, Endpoint]:
        """Return the cluster's brokers by their ids."""
        answer = self._channel.request(protocol.metadata_request([]))
        return {b.node_id: Endpoint(b.host, b.port) for b in answer.brokers}

    def find_coordinator(self, group: str) -> Endpoint:
        """Return the broker that keeps a group's offsets in Kafka."""
        answer = self._channel.request(protocol.find_coordinator_request(group))
        self._check(answer.error_code, f"tell the coordinator of group {group!r}")
        return Endpoint(answer.host, answer.port)

    def _check(self, code: int, doing: str) -> None:
        if not code:
            return
        kind = kafka_errors.for_code(code)
        text = f"broker {self._channel.endpoint} cannot {doing}: {kind.__name__} (error {code})"
        if code == protocol.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRangeError(text)
        if code in protocol.NO_LEADER:
            raise NotLeaderError(text)
        raise RetriableError(text) if getattr(kind, "retriable", False) else ZkConsumerError(text)


def _version(storage: str) -> int | None:
    if storage not in ("kafka", "zookeeper"):
        raise ConfigurationError(f"storage = {storage!r}: 'kafka' or 'zookeeper' is expected")
    return 0 if storage == "zookeeper" else None


__all__ = ["EARLIEST_TIME", "LATEST_TIME", "FetchedMessages", "PartitionMetadata", "SimpleConsumer"]
