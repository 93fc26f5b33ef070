"""The requests of a consumer, and how their answers are walked; no sockets here.

All come from kafka-python's generated classes, but for the answer to a fetch: that one is walked by hand,
because its records are to be read where they stay. Versions end where newer ones want topic ids (Fetch 13)
or batches of questions.

Source: the message definitions of Apache Kafka 4.3, clients/src/main/resources/common/message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from zkconsumer.message import TopicPartition

EARLIEST, LATEST = -2, -1

NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
#: Unknown partition, no leader, another leader, no replica here.
NO_LEADER = (3, 5, 6, 9)

_FETCH_MAX = 12
_FLEXIBLE = 12
_NO_EPOCH = -1
_CONSUMER = -1
_INT_MAX = (1 << 31) - 1


class Frame(Protocol):
    """An answer being read; ``channel.Frame`` is one."""

    left: int

    def read(self, size: int) -> bytes:
        """Return the next bytes."""

    def read_records(self, size: int) -> Any:
        """Return the next bytes in a buffer of their own."""


@dataclass(frozen=True, slots=True)
class PartitionData:
    """What a fetch brought of one partition.

    ``records`` may end in an incomplete entry. ``aborted``: ``(producer id, first offset)`` of the aborted
    transactions in it, told to read_committed fetches only.
    """

    partition: TopicPartition
    error_code: int
    high_watermark: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]]
    records: Any


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """The answer to one fetch; ``error_code`` is that of the whole."""

    throttle_time_ms: int
    error_code: int
    partitions: list[PartitionData]


def fetch_request(
    positions: Mapping[TopicPartition, int],
    *,
    max_wait_ms: int,
    min_bytes: int,
    partition_max_bytes: int,
    read_committed: bool,
    larger: Mapping[TopicPartition, int] | None = None,
) -> Any:
    """Ask for records from the given offsets, in the order of ``positions``.

    The order matters: from version 3 on the first partition with data gets at least one whole batch,
    whatever its size (KIP-74).

    Args:
        larger: partitions with another ``partition_max_bytes``.
    """
    sizes = larger or {}
    topics: list[tuple[str, list[Any]]] = []
    for (topic, partition), offset in positions.items():
        if not topics or topics[-1][0] != topic:
            topics.append((topic, []))
        topics[-1][1].append(
            FetchRequest.FetchTopic.FetchPartition(
                partition=partition,
                current_leader_epoch=_NO_EPOCH,
                fetch_offset=offset,
                partition_max_bytes=sizes.get(TopicPartition(topic, partition), partition_max_bytes),
            )
        )
    return FetchRequest(
        replica_id=_CONSUMER,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=_INT_MAX,
        isolation_level=int(read_committed),
        session_id=0,
        session_epoch=_NO_EPOCH,
        rack_id="",
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics],
        max_version=_FETCH_MAX,
    )


def read_fetch_answer(frame: Frame, version: int) -> FetchAnswer:
    """Walk the answer to a fetch of versions 0 to 12, from after the correlation id to its end."""
    walk = _Walk(frame, version >= _FLEXIBLE)
    walk.tags()
    throttle = walk.int32() if version >= 1 else 0
    error, _session = (walk.int16(), walk.int32()) if version >= 7 else (NONE, 0)
    answer = FetchAnswer(throttle, error, [])
    for _ in range(walk.count()):
        topic = walk.string()
        for _ in range(walk.count()):
            answer.partitions.append(_read_partition(walk, topic, version))
            walk.tags()
        walk.tags()
    walk.tags()
    return answer


def _read_partition(walk: _Walk, topic: str, version: int) -> PartitionData:
    partition, error, high_watermark = walk.int32(), walk.int16(), walk.int64()
    log_start, aborted = -1, []
    if version >= 4:
        walk.int64()  # last stable offset
        if version >= 5:
            log_start = walk.int64()
        for _ in range(walk.count()):
            aborted.append((walk.int64(), walk.int64()))
            walk.tags()
    if version >= 11:
        walk.int32()  # preferred read replica: only told to clients with a rack
    return PartitionData(TopicPartition(topic, partition), error, high_watermark, log_start, aborted, walk.records())


class _Walk:
    """Primitive values read one after the other."""

    def __init__(self, frame: Frame, flexible: bool) -> None:
        self._frame, self._flexible = frame, flexible

    def int16(self) -> int:
        return int(struct.unpack(">h", self._frame.read(2))[0])

    def int32(self) -> int:
        return int(struct.unpack(">i", self._frame.read(4))[0])

    def int64(self) -> int:
        return int(struct.unpack(">q", self._frame.read(8))[0])

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._frame.read(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise ValueError("a varint has more than five bytes")

    def count(self) -> int:
        """The length of an array; a null one counts as empty."""
        return max(0, self._uvarint() - 1 if self._flexible else self.int32())

    def string(self) -> str:
        size = self._uvarint() - 1 if self._flexible else self.int16()
        return self._frame.read(size).decode("utf-8")

    def records(self) -> Any:
        size = self._uvarint() - 1 if self._flexible else self.int32()
        return self._frame.read_records(size) if size > 0 else b""

    def tags(self) -> None:
        if self._flexible:
            for _ in range(self._uvarint()):
                self._uvarint()
                self._frame.read(self._uvarint())


def list_offsets_request(partitions: Iterable[TopicPartition], timestamp: int, *, read_committed: bool = False) -> Any:
    """Ask for the first offset at or after ``timestamp`` milliseconds, or for EARLIEST or LATEST."""
    topics: dict[str, list[Any]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=partition,
                current_leader_epoch=_NO_EPOCH,
                timestamp=timestamp,
                max_num_offsets=1,
            )
        )
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=int(read_committed),
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=p) for name, p in topics.items()],
        max_version=5,
    )


def read_offsets_answer(answer: Any) -> dict[TopicPartition, tuple[int, int]]:
    """Return ``(error code, offset)`` of each partition; offset -1 where the log has none that late."""
    found = {}
    for topic in answer.topics:
        for p in topic.partitions:
            old = getattr(p, "old_style_offsets", None)
            offset = old[0] if answer.API_VERSION == 0 and old else p.offset
            found[TopicPartition(topic.name, p.partition_index)] = (p.error_code, offset)
    return found


def metadata_request(topics: Iterable[str] | None) -> Any:
    """Ask for brokers and the leaders of ``topics``, of all for None; creates no topic on brokers from 0.11 on."""
    names = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    return MetadataRequest(topics=names, allow_auto_topic_creation=False, max_version=12)


def find_coordinator_request(group: str) -> Any:
    """Ask which broker keeps a group's offsets."""
    return FindCoordinatorRequest(key=group, key_type=0, max_version=3)


def offset_fetch_request(group: str, partitions: Iterable[TopicPartition] | None, version: int | None = None) -> Any:
    """Ask for a group's offsets in Kafka; of all partitions for None, from version 2 on.

    Args:
        version: 0 reads ZooKeeper.
    """
    topics = OffsetFetchRequest.OffsetFetchRequestTopic
    wanted = None if partitions is None else _by_topic(partitions)
    return OffsetFetchRequest(
        group_id=group,
        topics=None if wanted is None else [topics(name=n, partition_indexes=p) for n, p in wanted.items()],
        require_stable=False,
        min_version=(1 if wanted is not None else 2) if version is None else version,
        max_version=7 if version is None else version,
    )


def read_offset_fetch_answer(
    answer: Any,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition | None, int]]:
    """Return offsets (-1 where none is stored) and error codes; that of the whole answer under None."""
    offsets: dict[TopicPartition, int] = {}
    errors: dict[TopicPartition | None, int] = {}
    if answer.API_VERSION >= 2 and answer.error_code:
        errors[None] = answer.error_code
    for topic in answer.topics:
        for p in topic.partitions:
            partition = TopicPartition(topic.name, p.partition_index)
            if p.error_code:
                errors[partition] = p.error_code
            else:
                offsets[partition] = max(-1, p.committed_offset)
    return offsets, errors


def offset_commit_request(group: str, offsets: Mapping[TopicPartition, int], version: int | None = None) -> Any:
    """Store offsets as a group without members that Kafka coordinates.

    Args:
        version: 0 writes ZooKeeper.
    """
    t = OffsetCommitRequest.OffsetCommitRequestTopic
    topics: dict[str, list[Any]] = {}
    for (topic, number), offset in offsets.items():
        topics.setdefault(topic, []).append(
            t.OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset,
                committed_leader_epoch=_NO_EPOCH,
                commit_timestamp=-1,
                committed_metadata="",
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[t(name=name, partitions=partitions) for name, partitions in topics.items()],
        min_version=1 if version is None else version,
        max_version=7 if version is None else version,
    )


def read_offset_commit_answer(answer: Any) -> dict[TopicPartition, int]:
    """Return the error code of each partition."""
    return {TopicPartition(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics
