"""Fast bulk encoding of record batches, and a steady load generator.

Numbered batches contain decimal numbers of a fixed width. They can therefore be built with Arrow, and consumers can
verify that they received every number.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from zkconsumer.devcluster.admin import Admin
from zkconsumer.fetcher.codecs import compute_header_checksum
from zkconsumer.fetcher.native import native
from zkconsumer.message import TopicPartition

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def batch(values: Sequence[bytes], *, timestamp_ms: int | None = None, codec: str = "none") -> bytes:
    """Return a record batch in message format 2 with the given values and null keys.

    Args:
        timestamp_ms: timestamp of all records, in milliseconds since the epoch; by default the current time.
        codec: compression codec, a key of ``CODECS``.
    """
    records = bytearray()
    for delta, value in enumerate(values):
        body = b"\x00\x00" + _varint(delta) + b"\x01" + _varint(len(value)) + value + b"\x00"
        records += _varint(len(body)) + body
    return _with_header(bytes(records), len(values), timestamp_ms, codec)


def numbered_batch(
    first: int, count: int, *, step: int = 1, size: int = 100, timestamp_ms: int | None = None, codec: str = "none"
) -> bytes:
    """Return a record batch of ``count`` numbers: ``first``, ``first + step`` and so on.

    Args:
        size: value size in bytes.
        timestamp_ms: timestamp of all records, in milliseconds since the epoch; by default the current time.
        codec: compression codec, a key of ``CODECS``.

    Raises:
        ValueError: a number has more than ``size`` digits.
    """
    last = first + (count - 1) * step
    if len(str(last)) > size:
        raise ValueError(f"size must be at least the number of digits of {last}, got {size}")
    deltas, varints = _deltas(count)
    numbers = pc.add(pc.multiply(deltas, step), first)
    values = pc.utf8_lpad(numbers.cast(pa.string()), size, "0").cast(pa.binary())
    # Record sizes differ only by the varint length of the offset delta.
    pieces = []
    for begin, end, width in ((0, 64, 1), (64, 8192, 2), (8192, 1 << 20, 3)):
        if begin >= count:
            break
        before = _varint(4 + width + len(_varint(size)) + size) + b"\x00\x00"
        between = b"\x01" + _varint(size)
        records = pc.binary_join_element_wise(before, varints[begin:end], between, values[begin:end], b"\x00", b"")
        pieces.append(records.buffers()[2])
    return _with_header(b"".join(pieces), count, timestamp_ms, codec)


@lru_cache(maxsize=16)
def _deltas(count: int) -> tuple[Any, Any]:
    """Return the offset deltas of a batch as an array of integers, and as an array of varints."""
    return pa.array(range(count), pa.int64()), pa.array(map(_varint, range(count)), pa.binary())


def _with_header(records: bytes, count: int, timestamp_ms: int | None, codec: str) -> bytes:
    now = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    number = CODECS[codec]
    if codec == "lz4":
        records = _lz4_frame(records)
    elif codec == "snappy":
        records = _snappy_stream(records)
    elif number:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(records)
        records = sink.getvalue().to_pybytes()
    after_crc = struct.pack(">hiqqqhii", number, count - 1, now, now, -1, -1, -1, count) + records
    header = struct.pack(">qiibI", 0, 9 + len(after_crc), -1, 2, native.crc32c(after_crc))
    return header + after_crc


def _snappy_stream(data: bytes) -> bytes:
    """Compress in snappy-java's ``SnappyOutputStream`` format: a header, and length-prefixed blocks of 32 KiB."""
    raw = pa.Codec("snappy")
    parts = [b"\x82SNAPPY\x00", struct.pack(">ii", 1, 1)]
    for start in range(0, len(data), 1 << 15):
        packed = raw.compress(data[start : start + (1 << 15)], asbytes=True)
        parts += [struct.pack(">i", len(packed)), packed]
    return b"".join(parts)


def _lz4_frame(data: bytes) -> bytes:
    """Compress to an LZ4 frame with independent blocks of 64 KiB, as Kafka's Java decoder requires."""
    descriptor = b"\x60\x40"  # version 1, independent blocks, block size 64 KiB
    parts = [b"\x04\x22\x4d\x18", descriptor, bytes([compute_header_checksum(descriptor)])]
    raw = pa.Codec("lz4_raw")
    for start in range(0, len(data), 1 << 16):
        block = data[start : start + (1 << 16)]
        packed = raw.compress(block, asbytes=True)
        if len(packed) < len(block):
            parts += [struct.pack("<I", len(packed)), packed]
        else:
            parts += [struct.pack("<I", len(block) | 1 << 31), block]
    return b"".join([*parts, bytes(4)])


class SteadyLoad:
    """Thread that produces the numbers 0, 1, 2, ... in batches, round-robin over the partitions, until it is stopped.

    The rate never exceeds ``per_second``: after a delay, the thread does not catch up.

    Args:
        admin: admin client; the thread is its only user, and closes it on exit.
        partitions: partitions to write to.
        per_second: maximum number of records per second.
        batch: number of records per batch.
        width: value size in bytes; see ``numbered_batch``.

    Attributes:
        written: number of records produced, which is also the next number to produce.
    """

    def __init__(
        self,
        admin: Admin,
        partitions: Sequence[TopicPartition],
        *,
        per_second: float = 2000,
        batch: int = 20,
        width: int = 16,
    ) -> None:
        self.per_second = per_second
        self.partitions = list(partitions)
        self.written = 0
        self._admin, self._batch, self._width = admin, batch, width
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="zkconsumer-devcluster-load", daemon=True)
        self._thread.start()

    def partition_of(self, number: int) -> TopicPartition:
        """Return the partition to which a number is written."""
        return self.partitions[number // self._batch % len(self.partitions)]

    def stop(self, timeout: float = 60.0) -> int:
        """Stop producing, and return the number of records produced.

        Args:
            timeout: maximum seconds to wait for the thread.

        Raises:
            TimeoutError: the thread did not stop within ``timeout``.
            BaseException: an error stopped the thread; it is raised again.
        """
        self._stopped.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the load thread did not stop within {timeout:g} s")
        if self._error is not None:
            raise self._error
        return self.written

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._batch / self.per_second):
                records = numbered_batch(self.written, self._batch, size=self._width)
                self._admin.produce(self.partition_of(self.written), records)
                self.written += self._batch
        except BaseException as error:
            self._error = error
        finally:
            self._admin.close()
