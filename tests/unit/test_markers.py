"""Markers of committed offsets, and the offsets of application tasks."""

from __future__ import annotations

import pytest

from zkconsumer.message import TopicPartition
from zkconsumer.offsets.metadata import FIRST_MARKER, format_topic_id, parse_topic_id
from zkconsumer.spark.streams import markers
from zkconsumer.spark.streams.dataframe import METRICS, OFFSETS_COLUMN
from zkconsumer.spark.streams.markers import NO_OFFSET, NO_OUTPUT, Marker, encode_offsets
from zkconsumer.spark.streams.progress import find_task_offsets


@pytest.mark.parametrize("digest", [0, NO_OUTPUT, 0xFFFFFFFF])
def test_marker_is_read_from_metadata(digest: int) -> None:
    marker = Marker("query-1", 17, digest)
    for other in ("", "\0", "\0\0x", "1", "\ufffd"):
        assert Marker.from_metadata(marker.to_metadata() + other) == marker


class Committed:
    """A committed offset with invalid bytes after its metadata, like those that librdkafka can return."""

    def __init__(self, metadata: str) -> None:
        self._data = metadata.encode() + b"\xe1\x40"

    @property
    def metadata(self) -> str:
        return self._data.decode()


@pytest.mark.parametrize("metadata", [FIRST_MARKER, Marker("query-1", 17, 5).to_metadata()])
def test_metadata_may_be_followed_by_invalid_bytes(metadata: str) -> None:
    found = markers._read_metadata(Committed(metadata))

    assert found is not None
    assert found.startswith(metadata)
    assert Marker.from_metadata(found) == Marker.from_metadata(metadata)


@pytest.mark.parametrize("digest", ["2:0000abcd", "12:0000abcd"])
def test_digest_of_another_version_is_unknown(digest: str) -> None:
    assert Marker.from_metadata(f"zkconsumer query-1 17 {digest}") == Marker("query-1", 17, 0)


@pytest.mark.parametrize(
    "metadata",
    [None, "", "zkconsumer first", "zkconsumer query-1 17 0000abcd", "zkconsumer query-1 x 1:0000abcd", "other"],
)
def test_other_metadata_is_not_a_marker(metadata: str | None) -> None:
    assert Marker.from_metadata(metadata) is None


def test_markers_and_topic_ids_are_distinguished() -> None:
    with_id = format_topic_id("zk-17,id-AAAA")

    assert parse_topic_id(with_id) == "zk-17,id-AAAA"
    assert Marker.from_metadata(with_id) is None
    for other in (Marker("query-1", 17, 5).to_metadata(), FIRST_MARKER, "", f"x {with_id}"):
        assert parse_topic_id(other) == ""


@pytest.mark.parametrize(
    ("digest", "other", "is_changed"),
    [
        (5, Marker("q", 3, 5), False),
        (5, Marker("q", 3, 6), True),
        (5, Marker("q", 3, NO_OUTPUT), True),
        (NO_OUTPUT, Marker("q", 3, 5), True),
        (NO_OUTPUT, Marker("q", 3, NO_OUTPUT), False),
        (5, Marker("q", 3, 0), False),
        (0, Marker("q", 3, 5), False),
        (5, Marker("q", 2, 6), False),
        (5, Marker("other", 3, 6), False),
        (5, None, False),
    ],
)
def test_output_of_same_batch_is_compared(digest: int, other: Marker | None, is_changed: bool) -> None:
    assert Marker("q", 3, digest).has_other_output(other) is is_changed


def test_offsets_before_first_range_are_not_committed() -> None:
    first, second, third = (TopicPartition("t", number) for number in range(3))
    texts = [encode_offsets({first: NO_OFFSET, second: 0}), encode_offsets({third: 7}), encode_offsets({})]

    assert find_task_offsets({"observedMetrics": {METRICS: {OFFSETS_COLUMN: texts}}}) == {second: 0, third: 7}
