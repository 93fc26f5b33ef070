"""Errors for corrupt batches, and the log event for skipped batches."""

from __future__ import annotations

import struct

from zkconsumer.errors import CorruptRecordError
from zkconsumer.fetcher.batch_headers import find_entry_after
from zkconsumer.fetcher.chunk import NO_LIMIT, Chunk
from zkconsumer.fetcher.damage import Damage
from zkconsumer.log import Logger
from zkconsumer.message import TopicPartition


def corrupt_record_error(chunk: Chunk, reason: str, position: int, offset: int) -> CorruptRecordError:
    """Return the error for the corrupt entry at byte ``position`` of a chunk.

    Args:
        offset: offset at which reading resumes.
    """
    topic, partition = chunk.partition
    return CorruptRecordError(
        f"topic {topic!r} partition {partition} offset {offset}: {reason}, "
        f"at byte {position} of {len(chunk.data)} fetched from offset {chunk.fetch_offset}. "
        "The batch is fetched again; if the error persists, restore the partition from a replica (to skip the batch "
        "instead, commit an offset after the corrupt batch or set corrupt.record.policy=skip)",
        offset,
        *find_entry_after(chunk, position, offset),
    )


def damage_error(chunk: Chunk, damage: Damage, offset: int) -> CorruptRecordError:
    """Return the error for an entry with a corrupt header; see ``corrupt_record_error``."""
    (own_offset,) = struct.unpack_from(">q", chunk.data, damage.position)
    end = "" if chunk.end_offset == NO_LIMIT else f", log end offset {chunk.end_offset}"
    return corrupt_record_error(chunk, f"{damage.kind.text} (base offset {own_offset}{end})", damage.position, offset)


def log_skipped(log: Logger, partition: TopicPartition, error: CorruptRecordError) -> None:
    """Log that a corrupt batch was skipped."""
    log.error(
        "corrupt_records_skipped",
        topic=partition.topic,
        partition=partition.partition,
        offset=error.offset,
        next_offset=error.after,
        error=str(error),
    )
