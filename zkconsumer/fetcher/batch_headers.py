"""Checks the offset and size of each batch, which are not covered by the CRC.

``native.next_offset`` compares the headers with each other. This module decides what to do if two headers contradict
each other, and where reading resumes after a corrupt batch.

See docs/decisions/22-check-batch-headers.rst.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

from zkconsumer.broker.protocol import PartitionData
from zkconsumer.fetcher.chunk import DEFAULT_DECOMPRESSED_BATCH_MAX_BYTES, NO_LIMIT, Chunk
from zkconsumer.fetcher.damage import Damage, DamageKind
from zkconsumer.fetcher.native import native
from zkconsumer.fetcher.record_format import CHECK_CRC, CODEC_MASK, Segment
from zkconsumer.message import TopicPartition

_ANY_OFFSET = -1 << 63

#: First fields of an entry in all formats: the offset, and the size of the rest of the entry.
_ENTRY_START = struct.Struct(">qi")
_OFFSET = struct.Struct(">q")

#: Position of the magic byte, and the header bytes that identify a batch: from the size field to the CRC.
_MAGIC_AT = 16
_IDENTITY = slice(8, 21)


def make_chunk(
    partition: TopicPartition,
    fetch_offset: int,
    data: Any,
    *,
    starts_at_batch: bool = False,
    aborted: Sequence[tuple[int, int]] = (),
    until: int = NO_LIMIT,
    end_offset: int = NO_LIMIT,
    is_end_certain: bool = True,
    decompressed_batch_max_bytes: int = DEFAULT_DECOMPRESSED_BATCH_MAX_BYTES,
) -> Chunk:
    """Check the entry headers in a fetch response, and return the records as a chunk.

    The chunk ends before the first entry with a corrupt header, which is reported as ``damage``. If the chunk
    contains no complete entry, its ``next_offset`` is ``fetch_offset``.

    Args:
        starts_at_batch: whether ``fetch_offset`` is the end of a batch, so that no batch may start below it.
        end_offset: log end offset, or the high watermark if ``is_end_certain`` is false.
        is_end_certain: whether the log cannot have a higher end offset; otherwise, reported damage is provisional.
    """
    bounds = fetch_offset if starts_at_batch else 0, fetch_offset, end_offset
    next_offset, size, reason = native.next_offset(data, *bounds)
    if reason is not None and not size and is_end_certain:
        following = _skip_first_entry(data, fetch_offset, end_offset)
        if following is not None:
            data = following
            next_offset, size, reason = native.next_offset(data, *bounds)
    return Chunk(
        partition,
        fetch_offset,
        next_offset if size else fetch_offset,
        data,
        aborted,
        until,
        end_offset,
        decompressed_batch_max_bytes,
        None if reason is None else Damage.from_decoder(reason, size),
    )


def make_checked_chunk(
    data: PartitionData,
    fetch_offset: int,
    end_of_log: Callable[[], int],
    *,
    starts_at_batch: bool = False,
    aborted: Sequence[tuple[int, int]] = (),
    until: int = NO_LIMIT,
    decompressed_batch_max_bytes: int = DEFAULT_DECOMPRESSED_BATCH_MAX_BYTES,
) -> Chunk:
    """Create a chunk like ``make_chunk``, but report only damage that was confirmed with the log end offset.

    An intact batch may be above the high watermark of the response, because the broker may determine the high watermark
    before it reads the records. Damage is therefore checked again with the log end offset.

    Args:
        end_of_log: function that looks up the log end offset; its exceptions are propagated.
    """
    build = functools.partial(
        make_chunk,
        data.partition,
        fetch_offset,
        data.records,
        starts_at_batch=starts_at_batch,
        aborted=aborted,
        until=until,
        decompressed_batch_max_bytes=decompressed_batch_max_bytes,
    )
    chunk = build(end_offset=data.high_watermark, is_end_certain=False)
    if chunk.damage is None:
        return chunk
    return build(end_offset=max(data.high_watermark, end_of_log()))


class DamagedBatch:
    """Remembers a batch with a corrupt header, to detect that a later fetch skips the batch.

    If the base offset of a batch in the log is too low, the broker skips the batch when it is fetched again, as if it
    had been removed by compaction.
    """

    def __init__(self, chunk: Chunk) -> None:
        assert chunk.damage is not None
        self._offset = chunk.next_offset
        self._identity = _read_identity(chunk.data, chunk.damage.position)

    def check(self, chunk: Chunk) -> Chunk:
        """Mark a later chunk as damaged if it starts after the remembered batch; return the chunk."""
        if chunk.damage is not None or chunk.fetch_offset != self._offset or len(chunk.data) <= _MAGIC_AT:
            return chunk
        (first_offset,) = _OFFSET.unpack_from(chunk.data)
        is_message = memoryview(chunk.data)[_MAGIC_AT] < 2  # its offset field may hold its last record's offset
        if is_message or first_offset <= self._offset or _read_identity(chunk.data, 0) == self._identity:
            return chunk
        chunk.damage = Damage(DamageKind.BATCH_MISSING, 0)
        chunk.next_offset = chunk.fetch_offset
        return chunk


def find_entry_after(chunk: Chunk, position: int, offset: int) -> tuple[int, bytes]:
    """Return the offset after the corrupt entry at ``position``, and the entry; ``(-1, b"")`` if its end is unknown.

    If a batch is missing before ``position``, return the base offset of the entry at ``position``, and ``b""``.

    The size field of the entry is trusted only if the entry's CRC matches, or if an intact entry follows. The offset
    after the entry must be above ``offset``, and must not be above the end of the log.
    """
    data = memoryview(chunk.data)[position:]
    size = _read_entry_size(data)
    if size is None:
        return -1, b""
    own, following = _read_intact_entry(data[:size]), _read_intact_entry(data[size:])
    if chunk.damage == Damage(DamageKind.BATCH_MISSING, position):
        after, entry = -1 if own is None else own.base_offset, b""
    else:
        damage = chunk.damage
        is_offset_wrong = damage is not None and damage.position == position and damage.kind.is_offset
        if own is not None and not is_offset_wrong:  # only the content of the entry is corrupt
            after = own.next_offset
        elif following is None or (is_offset_wrong and not _is_confirmed(following, data[size:], chunk.end_offset)):
            after = -1
        elif following.magic < 2 and following.attributes & CODEC_MASK:
            after = int(_OFFSET.unpack_from(data)[0]) + 1  # the first offset of a compressed message is unknown
        else:
            after = following.base_offset
        if following is not None and not after <= following.base_offset < following.next_offset <= chunk.end_offset:
            after = -1
        entry = bytes(data[:size])
    return (after, entry) if offset < after <= chunk.end_offset else (-1, b"")


def _skip_first_entry(data: Any, fetch_offset: int, end_offset: int) -> Any | None:
    """Return the data without the first entry if the second one contains the requested offset, otherwise None.

    If the base offset of a batch in the log is too high, the broker also returns this batch for fetch offsets that
    belong to the batches after it.
    """
    size = _read_entry_size(memoryview(data))
    if size is None:
        return None
    following = memoryview(data)[size:]
    second = _read_intact_entry(following)
    if second is None or second.magic < 2 or not second.base_offset <= fetch_offset < second.next_offset:
        return None
    return following if _is_confirmed(second, following, end_offset) else None


def _read_entry_size(data: memoryview) -> int | None:
    """Return the size of the entry at the start of the data; None if the entry is incomplete."""
    if len(data) < _ENTRY_START.size:
        return None
    size = int(_ENTRY_START.unpack_from(data)[1]) + _ENTRY_START.size
    return size if _ENTRY_START.size < size <= len(data) else None


def _read_intact_entry(data: memoryview) -> Segment | None:
    """Return the entry at the start of the data if it is complete and its CRC matches, otherwise None."""
    try:
        found = native.scan(data, 0, _ANY_OFFSET, NO_LIMIT, 0, 0, CHECK_CRC)
    except ValueError:
        return None
    return None if found is None else Segment(*found)


def _is_confirmed(entry: Segment, data: memoryview, end_offset: int) -> bool:
    """Return whether the first entry ends at the offset of the second entry, or at the end of the log.

    If so, the offset of the first entry is correct.
    """
    following = data[entry.end :]
    if len(following) >= _OFFSET.size:
        return bool(_OFFSET.unpack_from(following)[0] == entry.next_offset)
    return not len(following) and entry.next_offset == end_offset


def _read_identity(data: Any, position: int) -> bytes:
    return bytes(memoryview(data)[position:][_IDENTITY])
