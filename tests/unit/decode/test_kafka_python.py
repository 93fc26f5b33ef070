"""Comparison of the decoders with kafka-python's decoder."""

from __future__ import annotations

import struct
import types
from typing import Any

import kafka.codec
import kafka.record.default_records
import kafka.record.legacy_records
import pyarrow as pa
import pytest
from helpers import batches
from helpers.batches import Expected
from hypothesis import given
from kafka.record import MemoryRecords

from .chunks import Part, chunk_of, examples, joined, logs, read


@pytest.fixture
def kafka_python_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the codecs that kafka-python lacks in this environment; it still decodes the framing itself."""

    def stream(name: str) -> Any:
        return lambda data: pa.input_stream(pa.py_buffer(data), compression=name).read()

    def snappy(data: bytes) -> bytes:
        size, shift = 0, 0
        for byte in data:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return bytes(pa.Codec("snappy").decompress(data, size, asbytes=True))

    class Digest:
        def __init__(self, data: bytes) -> None:
            self._data = data

        def digest(self) -> bytes:
            return struct.pack(">I", batches.xxh32(self._data))

    monkeypatch.setattr(kafka.codec, "snappy", types.SimpleNamespace(decompress=snappy))
    monkeypatch.setattr(kafka.codec, "lz4", object())
    monkeypatch.setattr(kafka.codec, "zstd", object())
    monkeypatch.setattr(kafka.codec, "xxhash", types.SimpleNamespace(xxh32=Digest))
    for module in (kafka.codec, kafka.record.default_records, kafka.record.legacy_records):
        monkeypatch.setattr(module, "lz4_decode", stream("lz4"))
    monkeypatch.setattr(kafka.record.default_records, "zstd_decode", stream("zstd"))


def kafka_python_rows(data: bytes) -> list[Expected]:
    rows = []
    for batch in MemoryRecords(data):
        assert batch.validate_crc()
        for record in batch:
            kind = -1 if record.timestamp_type is None else record.timestamp_type
            time = -1 if record.timestamp is None else record.timestamp
            rows.append(Expected(record.offset, record.key, record.value, time, kind, tuple(record.headers)))
    return rows


@pytest.mark.usefixtures("twin", "kafka_python_codecs")
@given(log=logs())
@examples(100)
def test_rows_equal_those_of_kafka_python(log: list[Part]) -> None:
    data, rows = joined(log)
    theirs = kafka_python_rows(data)
    wrapped = [row._replace(timestamp=(row.timestamp + (1 << 63)) % (1 << 64) - (1 << 63)) for row in theirs]
    assert read(chunk_of(data)).rows == wrapped == rows
