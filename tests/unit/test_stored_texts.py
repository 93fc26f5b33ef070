"""The texts that release 0.1.0 stores in ZooKeeper, in Kafka and in checkpoints. Later releases must read them.

For registrations of members, see ``test_registry``.
"""

from __future__ import annotations

import json

import pytest

from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.offsets.metadata import FIRST_MARKER, format_topic_id, parse_topic_id
from zkconsumer.spark.offset import BatchOffset
from zkconsumer.spark.streams.markers import GlobalTick, Marker, TopicEnds, decode_offsets, encode_offsets
from zkconsumer.topology import serdes
from zkconsumer.topology.dsl.change_serde import create_change_serde
from zkconsumer.topology.dsl.table_store import TableChange
from zkconsumer.zookeeper.registry import format_offset, parse_offset, parse_owner, thread_ids

ORDERS, OTHER, LATER = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 12)
TOPIC_ID = "zk-163,id-0b3c6a52-5a3e-4a7a-9a44-6f5b4b0f2c11"


def test_batch_offset_has_stored_format() -> None:
    text = (
        '{"ended": true, "version": 1, "sequence": 7, "generation": 3, "group": "g", '
        f'"known": {{"orders": 2, "payments": [12]}}, "ids": {{"orders": "{TOPIC_ID}"}}, "gone": ["old"], '
        '"before": {"payments": {"12": 5}}, "lags": {"orders": {"0": 40}}, "time": 1795512600000, '
        '"idle": {"orders": [1]}, "ranges": {"orders": {"0": [10, 20], "1": [5, 5]}}}'
    )
    offset = BatchOffset(
        ranges={ORDERS: (10, 20), OTHER: (5, 5)},
        generation=3,
        group="g",
        known=frozenset({ORDERS, OTHER, LATER}),
        topic_ids={"orders": TOPIC_ID},
        deleted_topics=("old",),
        earlier_ends={LATER: 5},
        lags={ORDERS: 40},
        planned_ms=1_795_512_600_000,
        idle=frozenset({OTHER}),
        sequence=7,
        is_ended=True,
    )

    assert BatchOffset.from_json(json.loads(text)) == offset
    assert json.dumps(offset.to_json()) == text


def test_task_offsets_have_stored_format() -> None:
    text, offsets = '[["orders", 0, 10], ["payments", 12, -1]]', {ORDERS: 10, LATER: -1}

    assert decode_offsets(text) == offsets
    assert encode_offsets(offsets) == text


def test_tick_has_stored_format() -> None:
    of_ends = '"ids": {"orders": "id-0b3c6a52"}, "offsets": "[[\\"orders\\", 0, 10]]"}'
    text = f'{{"brokers": [["b1", 9092], ["b2", 9093]], {of_ends}'
    ends = TopicEnds({ORDERS: 10}, {"orders": "id-0b3c6a52"})
    tick = GlobalTick(ends, [Endpoint("b1", 9092), Endpoint("b2", 9093)])

    assert GlobalTick.decode(text) == tick
    assert tick.encode() == text
    assert ends.encode() == f"{{{of_ends}"


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        ("zkconsumer 6f1c2b9e-3c1d 17 1:00000000", Marker("6f1c2b9e-3c1d", 17)),
        ("zkconsumer 6f1c2b9e-3c1d 0 1:0000abcd", Marker("6f1c2b9e-3c1d", 0, 0xABCD)),
    ],
)
def test_marker_has_stored_format(text: str, marker: Marker) -> None:
    assert Marker.from_metadata(text) == marker
    assert marker.to_metadata() == text
    assert FIRST_MARKER == "zkconsumer first"


def test_topic_id_has_stored_format() -> None:
    assert parse_topic_id(f"zkconsumer topic id: {TOPIC_ID}") == TOPIC_ID
    assert format_topic_id(TOPIC_ID) == f"zkconsumer topic id: {TOPIC_ID}"


def test_znodes_have_stored_format() -> None:
    assert parse_offset("/consumers/g/offsets/orders/0", b"42") == 42
    assert format_offset(42) == b"42"
    assert parse_owner(b"g_one-0") == "g_one-0"
    assert thread_ids("g_one", 2) == ["g_one-0", "g_one-1"]


@pytest.mark.parametrize(
    ("data", "change"),
    [
        (b"new\1", TableChange("new")),
        (b"old\0", TableChange(None, "old")),
        (b"\6newold\2", TableChange("new", "old")),
        (b"\x90\3" + b"n" * 200 + b"old\2", TableChange("n" * 200, "old")),
    ],
)
def test_table_change_has_stored_format(data: bytes, change: TableChange) -> None:
    serde = create_change_serde(serdes.STRING)

    assert serde.deserialize("t", data) == change
    assert serde.serialize("t", change) == data
