"""Tests of messages, topic partitions, decoders and the Arrow schema."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from zkconsumer import MessageAndMetadata, TopicPartition, string_decoder
from zkconsumer.message import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS, decoded_message_type

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


def test_message_without_decoders_is_plain_class() -> None:
    assert decoded_message_type(None, None) is MessageAndMetadata


def test_partition_has_text_of_kafka() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_partitions_sort_by_topic_then_number() -> None:
    partitions = [TopicPartition("b", 1), TopicPartition("a", 10), TopicPartition("a", 9)]

    assert [str(partition) for partition in sorted(partitions)] == ["a-9", "a-10", "b-1"]


def test_values_can_be_pickled() -> None:
    for value in (MessageAndMetadata(*FIELDS), TopicPartition("orders", 3)):
        assert pickle.loads(pickle.dumps(value)) == value


# ---- decoders -----------------------------------------------------------------------------------------


def test_decoder_applies_to_its_field() -> None:
    message = decoded_message_type(string_decoder, lambda data: int(data, 16))(*FIELDS[:3], b"k", b"ff", 0, 0, ())

    assert (message.key, message.value, message.message) == ("k", 255, 255)
    assert (message.topic, message.partition, message.offset) == ("orders", 3, 42)


@pytest.mark.parametrize("decoded", ["key", "value"])
def test_field_without_decoder_stays_bytes(decoded: str) -> None:
    decoders = (string_decoder, None) if decoded == "key" else (None, string_decoder)
    message = decoded_message_type(*decoders)(*FIELDS)

    assert {"key": message.key, "value": message.value} == {"key": b"key", "value": b"value"} | {
        decoded: decoded  # the value of each field is its name
    }


def test_decoders_run_at_each_access() -> None:
    seen: list[bytes] = []
    message = decoded_message_type(None, seen.append)(*FIELDS)

    assert seen == []
    assert (message.value, message.message) == (None, None), "must be the result of the decoder"
    assert seen == [b"value", b"value"]


def test_decoder_error_is_raised_on_access() -> None:
    message = decoded_message_type(None, string_decoder)(*FIELDS[:4], b"\xff", 0, 0, ())

    assert message.key == b"key"
    with pytest.raises(UnicodeDecodeError):
        _ = message.value
    assert message.offset == 42


def test_decoded_message_is_a_message() -> None:
    message = decoded_message_type(string_decoder, string_decoder)(*FIELDS)

    assert isinstance(message, MessageAndMetadata)
    assert type(message).__name__ == "MessageAndMetadata"
    assert not hasattr(message, "__dict__")


def test_decoder_is_not_called_for_null() -> None:
    message = decoded_message_type(len, len)(*FIELDS[:3], None, None, 0, 0, ())

    assert (message.key, message.value) == (None, None)


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
