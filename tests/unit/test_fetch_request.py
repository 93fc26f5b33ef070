"""Tests of FetchRequest: its bytes equal those of kafka-python's generated class."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import FetchRequest as GeneratedRequest

from zkconsumer.broker.api_versions import choose_version
from zkconsumer.broker.fetch_request import FetchRequest
from zkconsumer.errors import UnsupportedBrokerError
from zkconsumer.message import Endpoint, TopicPartition

VERSIONS = range(13)

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=150)
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "\xe9" * 70]) | names, int32)


def build_generated(request: FetchRequest) -> Any:
    """Return the same request as an object of kafka-python's class."""
    topics: list[Any] = []
    for (topic, number), (offset, size) in request.positions.items():
        if not topics or topics[-1].topic != topic:
            topics.append(GeneratedRequest.FetchTopic(topic=topic, partitions=[]))
        topics[-1].partitions.append(
            GeneratedRequest.FetchTopic.FetchPartition(
                partition=number, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=size
            )
        )
    forgotten: dict[str, list[int]] = {}
    for topic, number in request.forgotten:
        forgotten.setdefault(topic, []).append(number)
    return GeneratedRequest(
        replica_id=-1,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=int(request.read_committed),
        session_id=request.session[0],
        session_epoch=request.session[1],
        rack_id="",
        topics=topics,
        forgotten_topics_data=[GeneratedRequest.ForgottenTopic(topic=t, partitions=p) for t, p in forgotten.items()],
    )


@given(
    version=st.sampled_from(VERSIONS),
    request=st.builds(
        FetchRequest,
        st.dictionaries(partitions, st.tuples(int64, int32), max_size=5),
        max_wait_ms=int32,
        min_bytes=int32,
        read_committed=st.booleans(),
        max_bytes=int32,
        session=st.tuples(int32, int32),
        forgotten=st.frozensets(partitions, max_size=4),
    ),
    correlation_id=int32,
    client_id=names,
)
def test_bytes_equal_those_of_kafka_python(
    version: int, request: FetchRequest, correlation_id: int, client_id: str
) -> None:
    theirs = build_generated(request)
    for one in (request, theirs):
        one.API_VERSION = version
        one.with_header(correlation_id=correlation_id, client_id=client_id)

    assert request.encode(framed=False, header=False) == bytes(theirs.encode())
    assert request.encode(framed=True, header=True) == bytes(theirs.encode(framed=True, header=True))


@pytest.mark.parametrize("count", [126, 127, 128, 20_000])
def test_many_partitions_and_topics_equal_those_of_kafka_python(count: int) -> None:
    """The length of an array is a varint of one to three bytes."""
    by_topic = {TopicPartition(f"t{number}", 0): (1, 2) for number in range(count)}
    by_partition = {TopicPartition("t", number): (1, 2) for number in range(count)}
    for positions in (by_topic, by_partition):
        request = FetchRequest(positions, 100, 1, read_committed=False, forgotten=positions)
        theirs = build_generated(request)
        request.API_VERSION = theirs.API_VERSION = 12

        assert request.encode(framed=False, header=False) == bytes(theirs.encode())


@pytest.mark.parametrize("version", VERSIONS)
def test_order_of_partitions_is_kept(version: int) -> None:
    """A broker reads the partitions in this order until the response is full."""
    order = [("b", 1), ("a", 0), ("a", 3), ("b", 0)]
    request = FetchRequest({TopicPartition(*one): (7, 100) for one in order}, 100, 1, read_committed=False)
    request.API_VERSION = version
    read = GeneratedRequest.decode(request.encode(framed=False, header=False), version=version)

    assert [(topic.topic, found.partition) for topic in read.topics for found in topic.partitions] == order


def test_defaults_are_no_limit_and_no_session() -> None:
    request = FetchRequest({}, 100, 1, read_committed=True)

    assert (request.max_bytes, request.session, list(request.forgotten)) == ((1 << 31) - 1, (0, -1), [])


@pytest.mark.parametrize(("broker", "chosen"), [((0, 17), 12), ((4, 18), 12), ((0, 11), 11), ((0, 0), 0)])
def test_newest_common_version_is_chosen(broker: tuple[int, int], chosen: int) -> None:
    request = FetchRequest({}, 100, 1, read_committed=False)

    assert choose_version(request, BrokerVersionData(api_versions={1: broker}), Endpoint("b", 1)) == chosen


def test_broker_without_common_version_is_reported() -> None:
    request = FetchRequest({}, 100, 1, read_committed=False)

    with pytest.raises(UnsupportedBrokerError, match=r"no FetchRequest version in common.*\[0-12\].*\[13-17\]"):
        choose_version(request, BrokerVersionData(api_versions={1: (13, 17)}), Endpoint("b", 1))
