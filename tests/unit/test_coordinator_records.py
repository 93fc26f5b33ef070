"""Tests of the formatters for ``__consumer_offsets`` and ``__transaction_state``, with records of each version."""

from __future__ import annotations

import json
import random
import struct

import pytest

from zkconsumer.errors import ConfigurationError
from zkconsumer.message import MessageAndMetadata
from zkconsumer.tools.common import ToolError
from zkconsumer.tools.formatters import make_formatter

OFFSETS, GROUPS, TRANSACTIONS = (f"{name}MessageFormatter" for name in ("Offsets", "GroupMetadata", "TransactionLog"))
JSON = "org.apache.kafka.tools.consumer."


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def compact(value: str | None) -> bytes:
    return b"\0" if value is None else bytes([len(value) + 1]) + value.encode()


def show(formatter: str, key: bytes | None, value: bytes | None) -> str:
    return make_formatter(formatter, {})(MessageAndMetadata("t", 0, 7, key, value, 0, 0, ())).decode()


OFFSET_KEY = struct.pack(">h", 1) + text("g") + text("orders") + struct.pack(">i", 3)
GROUP_KEY = struct.pack(">h", 2) + text("g")
TRANSACTION_KEY = struct.pack(">h", 0) + text("app-1")

OFFSET_VALUES = {
    0: struct.pack(">hq", 0, 255) + text("") + struct.pack(">q", 1000),
    1: struct.pack(">hq", 1, 255) + text("") + struct.pack(">qq", 1000, 2000),
    2: struct.pack(">hq", 2, 255) + text("") + struct.pack(">q", 1000),
    3: struct.pack(">hqi", 3, 255, 5) + text("") + struct.pack(">q", 1000),
    4: struct.pack(">hqi", 4, 255, 5) + compact("") + struct.pack(">q", 1000) + b"\1\0\3abc",
}


@pytest.mark.parametrize("version", OFFSET_VALUES)
@pytest.mark.parametrize(
    "name",
    [
        "kafka.server.OffsetManager$OffsetsMessageFormatter",
        r"kafka.server.OffsetManager\$OffsetsMessageFormatter",
        "kafka.coordinator.GroupMetadataManager$OffsetsMessageFormatter",
        "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter",
        "OffsetsMessageFormatter",
    ],
)
def test_offset_has_format_of_kafka_1_1(name: str, version: int) -> None:
    expiration = 2000 if version == 1 else -1

    assert show(name, OFFSET_KEY, OFFSET_VALUES[version]) == (
        f"[g,orders,3]::[OffsetMetadata[255,NO_METADATA],CommitTime 1000,ExpirationTime {expiration}]\n"
    )


def test_metadata_of_offset_is_printed() -> None:
    value = struct.pack(">hq", 1, 0) + text("zü") + struct.pack(">qq", 1, 2)
    value = value.replace(b"\0\2z", b"\0\3z")  # the length is that of the UTF-8 bytes

    assert "OffsetMetadata[0,zü]" in show(OFFSETS, OFFSET_KEY, value)


def member(version: int) -> bytes:
    string = compact if version >= 4 else text
    data = b"\3ab" if version >= 4 else struct.pack(">i", 2) + b"ab"
    content = string("c-1") + (string("static") if version >= 3 else b"") + string("c") + string("/10.0.0.1")
    content += struct.pack(">i", 60000) if version >= 1 else b""
    return content + struct.pack(">i", 10000) + data + data + (b"\0" if version >= 4 else b"")


def group_value(version: int, members: list[bytes]) -> bytes:
    string = compact if version >= 4 else text
    content = struct.pack(">h", version) + string("consumer") + struct.pack(">i", 4) + string("range") + string("c-1")
    content += struct.pack(">q", 99) if version >= 2 else b""
    count = bytes([len(members) + 1]) if version >= 4 else struct.pack(">i", len(members))
    return content + count + b"".join(members) + (b"\0" if version >= 4 else b"")


@pytest.mark.parametrize("version", range(5))
def test_group_has_format_of_kafka_1_1(version: int) -> None:
    rebalance = 10000 if version == 0 else 60000

    assert show(GROUPS, GROUP_KEY, group_value(version, [member(version)])) == (
        "g::GroupMetadata(groupId=g, generation=4, protocolType=consumer, currentState=Stable, members=Map(c-1 -> "
        "MemberMetadata(memberId=c-1, clientId=c, clientHost=/10.0.0.1, sessionTimeoutMs=10000, "
        f"rebalanceTimeoutMs={rebalance}, supportedProtocols=List(range), )))\n"
    )
    assert "currentState=Empty, members=Map())" in show(GROUPS, GROUP_KEY, group_value(version, []))


def transaction_value(version: int, status: int = 1) -> bytes:
    content = struct.pack(">hqhib", version, 7, 2, 60000, status)
    if version == 0:
        content += struct.pack(">i", 1) + text("out") + struct.pack(">iii", 2, 0, 1)
    else:
        content += b"\2" + compact("out") + b"\3" + struct.pack(">ii", 0, 1) + b"\0"
    return content + struct.pack(">qq", 200, 100) + (b"\0" if version else b"")


@pytest.mark.parametrize("version", [0, 1])
def test_transaction_has_format_of_kafka_1_1(version: int) -> None:
    name = "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter"

    assert show(name, TRANSACTION_KEY, transaction_value(version)) == (
        "app-1::TransactionMetadata(transactionalId=app-1, producerId=7, producerEpoch=2, txnTimeoutMs=60000, "
        "state=Ongoing, pendingState=None, topicPartitions=Set(out-0, out-1), txnStartTimestamp=100, "
        "txnLastUpdateTimestamp=200)\n"
    )
    assert "state=UNKNOWN(77)" in show(name, TRANSACTION_KEY, transaction_value(version, 77))


def test_json_format_of_kafka_3_9() -> None:
    assert show(JSON + OFFSETS, OFFSET_KEY, OFFSET_VALUES[3]) == (
        '{"key":{"version":1,"data":{"group":"g","topic":"orders","partition":3}},"value":{"version":3,'
        '"data":{"offset":255,"leaderEpoch":5,"metadata":"","commitTimestamp":1000}}}\n'
    )
    group = json.loads(show(JSON + GROUPS, GROUP_KEY, group_value(3, [member(3)])))
    assert group["value"]["data"]["members"][0]["subscription"] == "YWI="
    transaction = json.loads(show(JSON + TRANSACTIONS, TRANSACTION_KEY, transaction_value(0)))
    assert transaction["value"]["data"]["transactionPartitions"] == [{"topic": "out", "partitionIds": [0, 1]}]


ALL = {OFFSETS: OFFSET_KEY, GROUPS: GROUP_KEY, TRANSACTIONS: TRANSACTION_KEY}


@pytest.mark.parametrize("name", ALL)
def test_tombstone_is_null(name: str) -> None:
    assert show(name, ALL[name], None).endswith("::NULL\n")
    assert json.loads(show(JSON + name, ALL[name], None))["value"] is None


@pytest.mark.parametrize("name", ALL)
def test_unknown_version_of_value_is_named(name: str) -> None:
    assert show(name, ALL[name], struct.pack(">h", 99) + b"content").endswith("::UNKNOWN\n")
    assert json.loads(show(JSON + name, ALL[name], struct.pack(">h", 99)))["value"] == {
        "version": 99,
        "data": "unknown",
    }


@pytest.mark.parametrize("name", ALL)
def test_records_of_other_kinds_are_skipped(name: str) -> None:
    others = [None, struct.pack(">h", 3) + text("g"), struct.pack(">h", 99), struct.pack(">h", -1)]
    others += [GROUP_KEY] if name == OFFSETS else [OFFSET_KEY]
    for key in others:
        assert show(name, key, b"anything") == ""


@pytest.mark.parametrize("name", ALL)
def test_malformed_records_raise_tool_errors(name: str) -> None:
    """Random and truncated content causes no other exception and no endless loop."""
    values = [*OFFSET_VALUES.values(), group_value(3, [member(3)]), group_value(4, [member(4)]), transaction_value(1)]
    for seed in range(500):
        draw = random.Random(seed)
        content = bytearray(draw.choice(values))
        content[draw.randrange(2, len(content))] = draw.randrange(256)
        key = ALL[name][: draw.randrange(1, len(ALL[name]) + 1)]
        try:
            show(name, key, bytes(content[: draw.randrange(len(content) + 1)]))
        except ToolError as error:
            assert "the record at offset 7 of t-0 cannot be formatted by" in str(error), seed


def test_misspelt_formatter_is_suggested() -> None:
    with pytest.raises(ConfigurationError, match="did you mean OffsetsMessageFormatter"):
        make_formatter("kafka.coordinator.group.GroupMetadataManager$OffsetMessageFormatter", {})
