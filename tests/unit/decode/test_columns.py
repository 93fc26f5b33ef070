"""Tests of the Arrow schema, of the buffers of the columns, and of the choice of the decoder."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from helpers.batches import GOLDEN

from zkconsumer.broker.buffers import allocate
from zkconsumer.fetcher import column_buffers
from zkconsumer.fetcher.arrow import ArrowReader
from zkconsumer.fetcher.decode import ChunkReader

from .chunks import arrow_batches, chunk_of, golden_rows, in_microseconds, read, read_arrow, rows_of


@pytest.mark.usefixtures("twin")
def test_schema_equals_that_of_sparks_source() -> None:
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = ("headers", pa.list_(pa.field("element", pair)))
    for wanted, options in ((fields, {}), ([*fields, headers], {"include_headers": True})):
        reader = ArrowReader(**options)
        ((batch, _),) = reader.read(chunk_of(GOLDEN["2 none"]))
        assert reader.schema == batch.schema == pa.schema(wanted)
        assert all(field.nullable for field in batch.schema)


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("damaged", [False, True])
def test_chunk_is_released_after_reading(damaged: bool) -> None:
    data = bytearray(GOLDEN["2 none"] + GOLDEN["1 lz4"] + GOLDEN["2 zstd"])
    data[-1] ^= damaged
    found = read_arrow(chunk_of(data)), read(chunk_of(data))
    gc.collect()  # frees the frames of an exception
    data.clear()  # raises BufferError if a buffer was not released
    assert [result.error != "" for result in found] == [damaged] * 2


@pytest.mark.usefixtures("twin")
def test_chunk_can_be_a_view() -> None:
    frame = b"before" + GOLDEN["2 none"] + b"after"
    chunk = chunk_of(memoryview(frame)[6:-5], 101)
    (block,) = ChunkReader(chunk, headers=False).read_blocks(1)
    assert (chunk.nbytes, block.rows, block.next_offset) == (205, 3, 106)


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("garbage", [b"\xaa", b"\x7f", b"\xff"])
def test_columns_do_not_expose_reused_memory(monkeypatch: pytest.MonkeyPatch, garbage: bytes) -> None:
    """This also holds after serialization: Spark's Arrow reads more of the buffers than pyarrow does."""

    def used_before(size: int) -> Any:
        buffer = allocate(size)
        memoryview(buffer).cast("B")[:] = garbage * size
        return buffer

    monkeypatch.setattr(column_buffers, "allocate", used_before)
    for name in ("0 none", "1 lz4", "2 none", "2 zstd"):
        for include_headers in (False, True):
            found, error = arrow_batches(GOLDEN[name], include_headers=include_headers)
            assert error is None
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, found[0][0].schema) as stream:
                stream.write_batch(found[0][0])
            (copy,) = pa.ipc.open_stream(sink.getvalue())
            copy.validate(full=True)
            assert rows_of(copy) == in_microseconds(golden_rows(name), include_headers)


def test_environment_selects_pure_python() -> None:
    code = "from zkconsumer.fetcher import decode; print(decode.native.__name__)"
    names = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"ZKCONSUMER_PURE": pure},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for pure in ("1", "0")
    ]
    assert names == ["zkconsumer.fetcher.decode_py", "zkconsumer.fetcher._decode"]
