"""Tests of messages, topic partitions, addresses, decoders and the Arrow schema."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from zkconsumer import MessageAndMetadata, TopicPartition, string_decoder
from zkconsumer.message import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS, Endpoint

FIELDS = ("orders", 3, 42, b"key", b"value", 1_600_000_000_000, 0, (("h", b"1"),))


def test_message_has_fields_of_original() -> None:
    assert MessageAndMetadata._fields == (
        "topic",
        "partition",
        "offset",
        "key",
        "value",
        "timestamp",
        "timestamp_type",
        "headers",
    )


def test_value_has_alias_message() -> None:
    assert MessageAndMetadata(*FIELDS).message == b"value"


def test_partition_has_text_of_kafka() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_partitions_sort_by_topic_then_number() -> None:
    partitions = [TopicPartition("b", 1), TopicPartition("a", 10), TopicPartition("a", 9)]

    assert [str(partition) for partition in sorted(partitions)] == ["a-9", "a-10", "b-1"]


def test_values_can_be_pickled() -> None:
    for value in (MessageAndMetadata(*FIELDS), TopicPartition("orders", 3)):
        assert pickle.loads(pickle.dumps(value)) == value


def test_string_decoder_reads_utf_8() -> None:
    assert string_decoder("é€😀".encode()) == "é€😀"
    assert string_decoder(b"") == ""


# ---- Arrow --------------------------------------------------------------------------------------------


def test_schema_equals_that_of_sparks_source() -> None:
    assert {field.name: str(field.type) for field in ARROW_SCHEMA} == {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int32",
        "offset": "int64",
        "timestamp": "timestamp[us, tz=UTC]",
        "timestampType": "int32",
    }
    assert all(field.nullable for field in ARROW_SCHEMA)


def test_headers_are_the_last_column() -> None:
    assert ARROW_SCHEMA_WITH_HEADERS.names == [*ARROW_SCHEMA.names, "headers"]
    headers = ARROW_SCHEMA_WITH_HEADERS.field("headers").type
    assert headers.value_type == pa.struct([("key", pa.string()), ("value", pa.binary())])


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [("h:1", ("h", 1)), (" h:1 ", ("h", 1)), ("[::1]:9092", ("::1", 9092)), ("10.0.0.1:65535", ("10.0.0.1", 65535))],
)
def test_endpoint_is_host_and_port(text: str, endpoint: tuple[str, int]) -> None:
    assert Endpoint.parse(text) == Endpoint(*endpoint)


@pytest.mark.parametrize("text", ["", "h", "h:", ":1", "h:x", "h:-1", "h:1:"])
def test_malformed_endpoint_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="address must be host:port, got "):
        Endpoint.parse(text)
