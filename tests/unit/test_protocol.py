"""Tests of requests and of the parser of Fetch responses, against the encoder of kafka-python."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest

from zkconsumer import TopicPartition
from zkconsumer.broker import protocol
from zkconsumer.broker.frame import Frame, ReceiveBuffer
from zkconsumer.broker.protocol import FetchResult, PartitionData, read_fetch_response
from zkconsumer.errors import BrokerUnavailableError
from zkconsumer.log_ends import EARLIEST
from zkconsumer.message import Endpoint

VERSIONS = range(13)

Topic = FetchResponse.FetchableTopicResponse
Partition = Topic.PartitionData


class BytesFrame:
    """A complete response in memory, as strict as ``Frame``.

    Args:
        more: maximum number of bytes that ``read_fields`` returns in addition to those that it must return.
    """

    def __init__(self, data: bytes, more: int = 0) -> None:
        self._data = data
        self._more = more
        self._last = 0  # size of the last result of read_fields
        self.remaining = len(data)

    def read_fields(self, size: int) -> bytes:
        if not 0 <= size <= self.remaining:
            raise BrokerUnavailableError(f"{size} of {self.remaining} bytes")
        start = len(self._data) - self.remaining
        self._last = min(size + self._more, self.remaining)
        self.remaining -= self._last
        return self._data[start : start + self._last]

    def put_back(self, size: int) -> None:
        assert 0 <= size <= self._last
        self._last -= size
        self.remaining += size

    def read_records(self, size: int) -> Any:
        records = self.read_fields(size)
        self.put_back(len(records) - size)
        return memoryview(records[:size])


def partition(
    number: int = 0,
    *,
    error: int = 0,
    high_watermark: int = 0,
    log_start: int = -1,
    aborted: Any = (),
    records: bytes | None = b"",
    **tagged: Any,
) -> Any:
    return Partition(
        partition_index=number,
        error_code=error,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=log_start,
        aborted_transactions=None
        if aborted is None
        else [Partition.AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted],
        preferred_read_replica=-1,
        records=records,
        **tagged,
    )


def encoded(version: int, topics: dict[str, list[Any]], *, throttle: int = 0, error: int = 0) -> bytes:
    """Return a response as a broker sends it, without size and correlation id."""
    response = FetchResponse(
        version=version,
        throttle_time_ms=throttle,
        error_code=error,
        session_id=1234,
        responses=[Topic(topic=name, partitions=partitions) for name, partitions in topics.items()],
    )
    response.with_header(correlation_id=0x7777)
    data = bytes(response.encode(header=True))
    assert data[:4] == b"\x00\x00\x77\x77"
    return data[4:]


def walked(data: bytes, version: int) -> FetchResult:
    answers = []
    frames: list[protocol.ResponseReader] = [BytesFrame(data, more) for more in (0, 1, 7, 512)]
    frames += [received_frame(data, piece) for piece in (1, 5, 100, 1 << 17)]
    for frame in frames:
        answers.append(read_fetch_response(frame, version))
        assert frame.remaining == 0, "the response has unread bytes"
    assert all(plain(answer) == plain(answers[0]) for answer in answers), "the result depends on received bytes"
    return answers[0]


def received_frame(data: bytes, piece: int) -> Frame:
    """Return a frame whose bytes are received in pieces of at least the given size, if the buffer has room for it."""
    at = 0

    def receive(view: memoryview, minimum: int) -> int:
        nonlocal at
        size = min(max(piece, minimum), len(view), len(data) - at)
        view[:size] = data[at : at + size]
        at += size
        return size

    return Frame(ReceiveBuffer(), receive, Endpoint("127.0.0.1", 9), len(data))


def plain(answer: FetchResult) -> FetchResult:
    """Return the answer with records as bytes, which can be compared."""
    return FetchResult(
        answer.throttle_time_ms,
        answer.error_code,
        [
            PartitionData(p.partition, p.error_code, p.high_watermark, list(p.aborted), bytes(p.records))
            for p in answer.partitions
        ],
    )


TOPICS = {
    "orders": [
        partition(0, high_watermark=1 << 40, log_start=7, aborted=[(5, 100), (6, 101)], records=b"some records"),
        partition(1, error=1, high_watermark=-1, records=None),
    ],
    "a.b_c-1": [partition(31, high_watermark=3, aborted=None, records=b"x" * 300)],
    "empty": [],
}


def expected(version: int) -> FetchResult:
    def data(topic: str, number: int, error: int, mark: int, aborted: Any, records: bytes) -> PartitionData:
        return PartitionData(
            TopicPartition(topic, number),
            error,
            mark,
            aborted if version >= 4 else [],
            records,
        )

    return FetchResult(
        55 if version >= 1 else 0,
        0,
        [
            data("orders", 0, 0, 1 << 40, [(5, 100), (6, 101)], b"some records"),
            data("orders", 1, 1, -1, [], b""),
            data("a.b_c-1", 31, 0, 3, [], b"x" * 300),
        ],
    )


# ---- Fetch responses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_response_of_each_version_is_read(version: int) -> None:
    assert plain(walked(encoded(version, TOPICS, throttle=55), version)) == expected(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_empty_response_is_read(version: int) -> None:
    assert walked(encoded(version, {}), version) == FetchResult(0, 0, [], 1234 if version >= 7 else 0)


@pytest.mark.parametrize("version", range(7, 13))
def test_top_level_error_is_read(version: int) -> None:
    assert walked(encoded(version, {}, error=71), version).error_code == 71


def test_tagged_fields_are_skipped() -> None:
    tagged = partition(
        3,
        records=b"data",
        diverging_epoch=Partition.EpochEndOffset(epoch=4, end_offset=99),
        current_leader=Partition.LeaderIdAndEpoch(leader_id=2, leader_epoch=9),
    )
    data = encoded(12, {"t": [tagged, partition(4, records=b"more")]})
    assert len(data) > len(encoded(12, {"t": [partition(3, records=b"data"), partition(4, records=b"more")]}))

    assert [(p.partition.partition, bytes(p.records)) for p in walked(data, 12).partitions] == [
        (3, b"data"),
        (4, b"more"),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_response_raises(version: int) -> None:
    whole = encoded(version, TOPICS, throttle=55)
    for size in range(len(whole)):
        for more in (0, 512):
            with pytest.raises((BrokerUnavailableError, ValueError)):
                read_fetch_response(BytesFrame(whole[:size], more), version)


@pytest.mark.parametrize("more", [0, 3, 512])
@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_after_response_are_left(version: int, more: int) -> None:
    frame = BytesFrame(encoded(version, TOPICS) + b"behind", more)

    read_fetch_response(frame, version)

    assert frame.remaining == len(b"behind")


names = st.text(st.characters(max_codepoint=0x2FFF, exclude_categories=["Cs"]), max_size=12)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
partitions = st.builds(
    partition,
    st.integers(0, (1 << 31) - 1),
    error=st.integers(-1, 120),
    high_watermark=int64,
    log_start=int64,
    aborted=st.none() | st.lists(st.tuples(int64, int64), max_size=3),
    records=st.none() | st.binary(max_size=200),
)


@given(
    version=st.sampled_from(VERSIONS),
    topics=st.dictionaries(names, st.lists(partitions, max_size=3), max_size=3),
    throttle=st.integers(0, (1 << 31) - 1),
)
def test_any_response_equals_kafka_python(version: int, topics: dict[str, Any], throttle: int) -> None:
    data = encoded(version, topics, throttle=throttle)

    answer = plain(walked(data, version))

    theirs = FetchResponse.decode(b"\x00\x00\x77\x77" + data, version=version, header=True)
    assert answer == FetchResult(
        throttle if version >= 1 else 0,
        0,
        [
            PartitionData(
                TopicPartition(topic.topic, p.partition_index),
                p.error_code,
                p.high_watermark,
                [(a.producer_id, a.first_offset) for a in p.aborted_transactions or ()] if version >= 4 else [],
                bytes(p.records or b""),
            )
            for topic in theirs.responses
            for p in topic.partitions
        ],
    )


@settings(max_examples=300)
@given(version=st.sampled_from(VERSIONS), data=st.binary(max_size=120))
def test_any_bytes_are_response_or_mapped_error(version: int, data: bytes) -> None:
    try:
        answer = read_fetch_response(BytesFrame(data), version)
    except (BrokerUnavailableError, ValueError, struct.error, IndexError):
        return
    assert sum(len(p.records) for p in answer.partitions) <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">iihi", 0, 0x7FFFFFFF, 1, 0),  # v1: throttle time, too many topics
        struct.pack(">ii", 0, 1) + struct.pack(">h", -1),  # a topic without a name
        struct.pack(">iih1sii", 0, 1, 1, b"t", 1, 0) + struct.pack(">hqi", 0, 0, 0x7FFFFFFF),  # too many records
    ],
    ids=["topics", "null name", "records"],
)
def test_oversized_fields_allocate_nothing(data: bytes) -> None:
    with pytest.raises((BrokerUnavailableError, ValueError)):
        read_fetch_response(BytesFrame(data), 1)


def test_endless_varint_raises() -> None:
    with pytest.raises(ValueError, match="varint"):
        read_fetch_response(BytesFrame(b"\xff" * 40), 12)


# ---- requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_list_offsets_request_of_each_version(version: int) -> None:
    request = protocol.list_offsets_request(
        [TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("a", 2)], EARLIEST
    )
    request.API_VERSION = version
    read = ListOffsetsRequest.decode(bytes(request.encode()), version=version)

    assert [(t.name, p.partition_index, p.timestamp) for t in read.topics for p in t.partitions] == [
        ("a", 1, -2),
        ("a", 2, -2),
        ("b", 0, -2),
    ]


OffsetsTopic = ListOffsetsResponse.ListOffsetsTopicResponse
OffsetsPartition = OffsetsTopic.ListOffsetsPartitionResponse


@pytest.mark.parametrize("version", range(6))
def test_list_offsets_response_of_each_version(version: int) -> None:
    def partition(number: int, error: int, offset: int) -> Any:
        return OffsetsPartition(
            partition_index=number,
            error_code=error,
            old_style_offsets=[offset] if offset >= 0 else [],
            timestamp=-1,
            offset=offset,
            leader_epoch=-1,
        )

    response = ListOffsetsResponse(
        version=version,
        throttle_time_ms=0,
        topics=[OffsetsTopic(name="t", partitions=[partition(0, 0, 42), partition(1, 3, -1), partition(2, 0, 0)])],
    )
    answer = ListOffsetsResponse.decode(bytes(response.encode()), version=version)

    assert protocol.parse_list_offsets_response(answer) == {
        TopicPartition("t", 0): (0, 42),
        TopicPartition("t", 1): (3, -1),
        TopicPartition("t", 2): (0, 0),
    }


@pytest.mark.parametrize("version", range(4, 10))
def test_metadata_request_creates_no_topic(version: int) -> None:
    request = protocol.metadata_request(["a", "b"])
    request.API_VERSION = version
    read = MetadataRequest.decode(bytes(request.encode()), version=version)

    assert [topic.name for topic in read.topics] == ["a", "b"]
    assert read.allow_auto_topic_creation is False


@pytest.mark.parametrize("version", range(1, 10))
def test_metadata_request_for_none_differs_from_all(version: int) -> None:
    request = protocol.metadata_request([])
    request.API_VERSION = version
    assert MetadataRequest.decode(bytes(request.encode()), version=version).topics == []
