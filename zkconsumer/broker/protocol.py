"""Creates a consumer's requests and parses the responses, without network access.

kafka-python's generated classes encode most requests and decode most responses; for Fetch requests, see
``fetch_request``. Fetch responses are parsed here, so that records are read from the socket without being copied.
Request versions with topic ids (Fetch 13 or later) or with several groups per request are not used.

Source: the message definitions of Apache Kafka 4.3, clients/src/main/resources/common/message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from zkconsumer.message import TopicPartition

#: Kafka's error code; also used for partitions that are missing from a response.
UNKNOWN_SERVER_ERROR = -1
NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
INVALID_TOPIC_EXCEPTION = 17
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
#: Errors after which the leader is looked up again: UNKNOWN_TOPIC_OR_PARTITION (3), LEADER_NOT_AVAILABLE (5),
#: NOT_LEADER_OR_FOLLOWER (6), REPLICA_NOT_AVAILABLE (9).
NO_LEADER = (3, 5, 6, 9)

FETCH_FIRST_FLEXIBLE_VERSION = 12
_FIRST_METADATA_VERSION_WITH_TOPIC_IDS = 10
NO_EPOCH = -1
CONSUMER_REPLICA_ID = -1

#: Leading fields of a partition in a Fetch response: partition number, error code, high watermark, last stable offset
#: (as of version 4) and log start offset (as of version 5).
_PARTITION_V0 = struct.Struct(">ihq")
_PARTITION_V4 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")

#: Fields of an aborted transaction: producer id and first offset.
_ABORTED = struct.Struct(">qq")

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


class ResponseReader(Protocol):
    """A response that is being read, for example a ``Frame``."""

    remaining: int

    def read_fields(self, size: int) -> bytes:
        """Return at least the next ``size`` bytes."""

    def put_back(self, size: int) -> None:
        """Put the last ``size`` bytes of ``read_fields`` back, to read them again."""

    def read_records(self, size: int) -> Any:
        """Return the next ``size`` bytes in a separate buffer."""


@dataclass(frozen=True, slots=True)
class PartitionData:
    """Data of one partition in a Fetch response.

    Attributes:
        aborted: aborted transactions in ``records``, as ``(producer id, first offset)``; only with ``read_committed``.
        records: encoded record batches; the last one may be incomplete.
    """

    partition: TopicPartition
    error_code: int
    high_watermark: int
    aborted: Sequence[tuple[int, int]]
    records: Any


class CommittedOffset(NamedTuple):
    """A committed offset (-1 if there is none) and its metadata string."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class FetchResult:
    """A parsed Fetch response.

    Attributes:
        error_code: top-level error code.
        session_id: fetch session id; 0 before version 7, or if the broker has no session for the client.
    """

    throttle_time_ms: int
    error_code: int
    partitions: list[PartitionData]
    session_id: int = 0


def read_fetch_response(frame: ResponseReader, version: int) -> FetchResult:
    """Parse a Fetch response of version 0 to 12; the frame must start after the correlation id."""
    fields = _FieldReader(frame, version >= FETCH_FIRST_FLEXIBLE_VERSION)
    fields.skip_tags()
    throttle = fields.int32() if version >= 1 else 0
    error, session_id = (fields.int16(), fields.int32()) if version >= 7 else (NONE, 0)
    result = FetchResult(throttle, error, [], session_id)
    for _ in range(fields.array_length()):
        topic = fields.string()
        for _ in range(fields.array_length()):
            result.partitions.append(_read_partition(fields, topic, version))
            fields.skip_tags()
        fields.skip_tags()
    fields.skip_tags()
    fields.put_back()
    return result


def _read_partition(fields: _FieldReader, topic: str, version: int) -> PartitionData:
    # Unpack these fields in one call for speed: each partition in a response has them, even if it has no records.
    aborted = []
    if version >= 5:
        partition, error, high_watermark, _last_stable, _log_start = fields.unpack(_PARTITION_V5)
    elif version == 4:
        partition, error, high_watermark, _last_stable = fields.unpack(_PARTITION_V4)
    else:
        partition, error, high_watermark = fields.unpack(_PARTITION_V0)
    if version >= 4:
        for _ in range(fields.array_length()):
            aborted.append(fields.unpack(_ABORTED))
            fields.skip_tags()
    if version >= 11:
        fields.int32()  # preferred read replica: set only for clients with a rack id
    return PartitionData(TopicPartition(topic, partition), error, high_watermark, aborted, fields.records())


class _FieldReader:
    """Reads the primitive fields of a response in order.

    It takes many bytes from the frame at once, because a call per field would be slow.
    """

    def __init__(self, frame: ResponseReader, flexible: bool) -> None:
        self._frame, self._flexible = frame, flexible
        self._data = b""
        self._at = 0  # position of the next field in _data

    def put_back(self) -> None:
        """Put back the bytes that were taken from the frame, but are not part of the fields read."""
        self._frame.put_back(len(self._data) - self._at)
        self._data, self._at = b"", 0

    def _take(self, size: int) -> int:
        """Return the position of the next ``size`` bytes in ``_data``."""
        at = self._at
        if not 0 <= size <= len(self._data) - at:
            self.put_back()
            self._data, at = self._frame.read_fields(size), 0
        self._at = at + size
        return at

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read several fixed-size fields at once."""
        at = self._take(layout.size)
        return layout.unpack_from(self._data, at)

    def int16(self) -> int:
        return int(self.unpack(_INT16)[0])

    def int32(self) -> int:
        return int(self.unpack(_INT32)[0])

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            at = self._take(1)
            byte = self._data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise ValueError("varint is longer than five bytes")

    def array_length(self) -> int:
        """Read the length of an array; 0 for a null array."""
        return max(0, self._uvarint() - 1 if self._flexible else self.int32())

    def string(self) -> str:
        size = self._uvarint() - 1 if self._flexible else self.int16()
        at = self._take(size)
        return self._data[at : at + size].decode("utf-8")

    def records(self) -> Any:
        size = self._uvarint() - 1 if self._flexible else self.int32()
        if size <= 0:
            return b""
        self.put_back()
        return self._frame.read_records(size)

    def skip_tags(self) -> None:
        """Skip tagged fields."""
        if self._flexible:
            for _ in range(self._uvarint()):
                self._uvarint()
                self._take(self._uvarint())


def list_offsets_request(partitions: Iterable[TopicPartition], timestamp: int, *, read_committed: bool = False) -> Any:
    """Create a ListOffsets request.

    Args:
        timestamp: ``EARLIEST``, ``LATEST``, or the time to search for, in milliseconds since the epoch.
    """
    topics: dict[str, list[Any]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=partition,
                current_leader_epoch=NO_EPOCH,
                timestamp=timestamp,
                max_num_offsets=1,
            )
        )
    return ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=int(read_committed),
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=p) for name, p in topics.items()],
        max_version=5,
    )


def parse_list_offsets_response(response: Any) -> dict[TopicPartition, tuple[int, int]]:
    """Return ``(error code, offset)`` of each partition; the offset is -1 if no record is at or after the timestamp."""
    offsets = {}
    for topic in response.topics:
        for p in topic.partitions:
            old = getattr(p, "old_style_offsets", None)
            offset = old[0] if response.API_VERSION == 0 and old else p.offset
            offsets[TopicPartition(topic.name, p.partition_index)] = (p.error_code, offset)
    return offsets


def metadata_request(topics: Iterable[str] | None) -> Any:
    """Create a Metadata request that does not create topics on brokers with version 0.11 or later.

    Args:
        topics: topic names; None for all topics.
    """
    names = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    return MetadataRequest(topics=names, allow_auto_topic_creation=False, max_version=12)


def parse_topic_ids(response: Any) -> dict[str, str]:
    """Return the id of each topic with partitions in a Metadata response; "" if the broker has no topic ids."""
    existing = [topic for topic in response.topics if topic.partitions]
    if response.API_VERSION < _FIRST_METADATA_VERSION_WITH_TOPIC_IDS:
        return dict.fromkeys((topic.name for topic in existing), "")
    return {topic.name: f"id-{topic.topic_id}" if topic.topic_id.int else "" for topic in existing}


def find_coordinator_request(group: str) -> Any:
    """Create a FindCoordinator request."""
    return FindCoordinatorRequest(key=group, key_type=0, max_version=3)


def describe_group_request(group: str) -> Any:
    """Create a DescribeGroups request for one group."""
    return DescribeGroupsRequest(groups=[group], max_version=2)


def parse_describe_group_response(response: Any) -> tuple[list[str], int]:
    """Return the id and host of each member, and the error code. A group that does not exist has no members."""
    members = [f"{one.member_id} on {one.client_host}" for group in response.groups for one in group.members]
    return members, next((group.error_code for group in response.groups), UNKNOWN_SERVER_ERROR)


def offset_fetch_request(group: str, partitions: Iterable[TopicPartition] | None, version: int | None = None) -> Any:
    """Create an OffsetFetch request.

    Args:
        partitions: requested partitions; None for all partitions with a committed offset, which requires version 2 or
            later.
        version: 0 to read the offsets from ZooKeeper; None to negotiate a version that reads them from Kafka.
    """
    topics = OffsetFetchRequest.OffsetFetchRequestTopic
    by_topic = None if partitions is None else group_by_topic(partitions)
    return OffsetFetchRequest(
        group_id=group,
        topics=None if by_topic is None else [topics(name=n, partition_indexes=p) for n, p in by_topic.items()],
        require_stable=False,
        min_version=(1 if by_topic is not None else 2) if version is None else version,
        max_version=7 if version is None else version,
    )


def parse_offset_fetch_response(
    response: Any,
) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition | None, int]]:
    """Return the committed offsets (-1 for none) and the error codes; the top-level error has the key None."""
    offsets: dict[TopicPartition, CommittedOffset] = {}
    errors: dict[TopicPartition | None, int] = {}
    if response.API_VERSION >= 2 and response.error_code:
        errors[None] = response.error_code
    for topic in response.topics:
        for p in topic.partitions:
            partition = TopicPartition(topic.name, p.partition_index)
            if p.error_code:
                errors[partition] = p.error_code
            else:
                offsets[partition] = CommittedOffset(max(-1, p.committed_offset), p.metadata or "")
    return offsets, errors


def offset_commit_request(
    group: str,
    offsets: Mapping[TopicPartition, int],
    metadata: Mapping[TopicPartition, str] | None = None,
    *,
    version: int | None = None,
) -> Any:
    """Create an OffsetCommit request for a group that has no Kafka-coordinated members.

    Args:
        metadata: string to store with the offset, by partition; "" is stored for other partitions.
        version: 0 to write the offsets to ZooKeeper; None to negotiate a version that writes them to Kafka.
    """
    t = OffsetCommitRequest.OffsetCommitRequestTopic
    topics: dict[str, list[Any]] = {}
    for (topic, number), offset in offsets.items():
        topics.setdefault(topic, []).append(
            t.OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset,
                committed_leader_epoch=NO_EPOCH,
                commit_timestamp=-1,
                committed_metadata=(metadata or {}).get(TopicPartition(topic, number), ""),
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


def parse_offset_commit_response(response: Any) -> dict[TopicPartition, int]:
    """Return the error code of each partition."""
    return {TopicPartition(t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions}


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers of each topic."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics
