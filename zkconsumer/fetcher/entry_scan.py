"""Part of the pure Python decoder: finds entries without decoding their records, and checks their offsets."""

from __future__ import annotations

import struct
from typing import Any

from zkconsumer.fetcher.damage import DamageKind
from zkconsumer.fetcher.record_format import (
    CHECK_CRC,
    CONTROL,
    Segment,
    can_join_run,
    read_entry,
    wrap64,
)


def scan(
    data: Any, start: int, from_offset: int, until: int, max_rows: int, max_bytes: int, flags: int, /
) -> Segment | None:
    """Find the next segment of a partition's records at or after byte ``start``.

    A run ends before the offset ``until``, before an entry that would exceed ``max_rows`` or ``max_bytes`` (the first
    entry is always included), and before an entry that cannot join the run. Entries that contain only offsets
    below ``from_offset`` are skipped, except control batches.

    Args:
        flags: ``CHECK_CRC`` to verify checksums; ``SPLIT_TRANSACTIONS`` to return each transactional batch as its own
            segment.

    Returns:
        The segment, or None if there is no further complete entry.

    Raises:
        ValueError: the first entry of the segment is corrupt; the arguments are the reason and the byte position.
    """
    view = memoryview(data)
    if not 0 <= start <= len(view):
        raise IndexError("start is outside the data")
    first = _find_first_entry(view, start, from_offset, flags)
    if first is None or not can_join_run(first, flags):
        return first
    rows, last = first.rows, first
    while last.end < len(view):
        try:
            entry = read_entry(view, last.end, bool(flags & CHECK_CRC))
        except ValueError:
            break
        if entry is None or not can_join_run(entry, flags) or (entry.magic == 2) != (first.magic == 2):
            break
        if entry.base_offset >= until or rows + entry.rows > max_rows or entry.end - first.begin > max_bytes:
            break
        rows += entry.rows
        last = entry
    return first._replace(end=last.end, rows=rows, next_offset=last.next_offset)


def _find_first_entry(view: memoryview, start: int, from_offset: int, flags: int) -> Segment | None:
    """Return the first complete entry that contains ``from_offset`` or a later offset, or is a control batch.

    Return None if there is no such entry.
    """
    at = start
    while at < len(view):
        entry = read_entry(view, at, bool(flags & CHECK_CRC))
        if entry is None:
            return None
        if entry.next_offset > from_offset or (entry.magic == 2 and entry.attributes & CONTROL):
            return entry
        at = entry.end
    return None


def next_offset(data: Any, first_offset: int, from_offset: int, end_offset: int, /) -> tuple[int, int, str | None]:
    """Find the end of the complete entries whose offsets are possible.

    The CRC of an entry does not cover its offset. Offsets must therefore be between ``from_offset`` and ``end_offset``,
    and must not go backward. If an entry's offset exceeds the next entry's offset (the next entry may be incomplete),
    either offset may be wrong. The first entry is reported if the second offset may be correct. This is the case if
    lower offsets are available for the first entry between its neighbors, or if the first entry is at the start of the
    data and the second entry contains ``from_offset`` or later offsets, because the broker may have selected the first
    entry by its wrong offset.

    Args:
        first_offset: minimum base offset of the first entry. Brokers return whole batches, so a batch may start below
            the requested offset.
        from_offset: the requested offset; the first entry must end after it.
        end_offset: log end offset.

    Returns:
        The offset after these entries (-1 if there are none), their total size in bytes, and the reason why the entry
        after them is corrupt (None if that entry is incomplete or absent).
    """
    view = memoryview(data)
    at = last_at = 0
    lowest, position = first_offset, from_offset
    lowest_of_last, position_of_last, span_of_last = lowest, position, 0
    reason: str | None = None
    while len(view) - at >= 8:
        (offset,) = struct.unpack_from(">q", view, at)
        entry, error = _read_complete_entry(view, at)
        if at and offset < position:
            if last_at:
                may_be_right = wrap64(offset - span_of_last) >= lowest_of_last
            else:
                may_be_right = offset >= first_offset and (entry is None or entry.next_offset > from_offset)
            if may_be_right:
                reason, at, position = DamageKind.OFFSET_ABOVE_NEXT.text, last_at, position_of_last
                break
        if entry is None:
            reason = error
            break
        if offset < lowest or entry.next_offset <= position:
            reason = DamageKind.OFFSET_BACKWARD.text
            break
        if entry.next_offset > end_offset:
            reason = DamageKind.OFFSET_ABOVE_END.text
            break
        lowest_of_last, position_of_last = lowest, position
        span_of_last = wrap64(entry.next_offset - offset)
        last_at, at = at, entry.end
        lowest = position = entry.next_offset
    return position if at else -1, at, reason


def _read_complete_entry(view: memoryview, at: int) -> tuple[Segment | None, str | None]:
    """Return the complete entry at byte ``at`` or None, and the reason if it is corrupt; the CRC is not checked."""
    try:
        return read_entry(view, at, False), None
    except ValueError as error:
        return None, str(error.args[0])
