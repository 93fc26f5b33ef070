"""Finds the records that a producer must send before the others, because it has not written to their partitions yet.

A broker accepts any sequence number in the first batch of a producer. If it rejects this batch, it accepts the next one
that is already in flight, and the valid records of the first batch can only be written after those of the next one.

Source: Kafka 3.9 ProducerAppendInfo.checkSequence.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zkconsumer.spark.streams.output import STICKY_RECORDS, RecordFields

#: Maximum seconds for which a partition counts as written. Brokers forget a producer that has not written to a
#: partition for ``producer.id.expiration.ms``, one day by default.
_MAX_AGE_S = 3_600.0
#: Replaces the partitions of a topic whose partition count is unknown.
_ANY = -1

# Faster than Python code per record.
_TOPIC, _KEY, _PARTITION = map(operator.itemgetter, (0, 2, 3))


class FirstRecords:
    """Tracks the partitions to which a producer with the partitioner ``murmur2_random`` has written.

    Args:
        count_partitions: returns the number of partitions of a topic; 0 if it is unknown.
        clock: function that returns the current time in seconds.
    """

    def __init__(self, count_partitions: Callable[[str], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._count_partitions, self._clock = count_partitions, clock
        self._counts: dict[str, int] = {}
        self._missing: dict[str, set[int]] = {}  # partitions without a written record, by topic
        self._sent: set[tuple[str, int]] = set()
        self._since = clock()

    def divide(self, records: list[RecordFields]) -> tuple[list[RecordFields], list[RecordFields]]:
        """Return the records to be written before the others are sent, at most one per partition, and the others.

        If records without key and partition are for a topic whose partitions were not all written, they get a
        partition, because the producer would choose one randomly.
        """
        topics = {topic for topic in set(map(_TOPIC, records)) if self._find_missing(topic)}
        if not topics:
            return [], records
        records, partitions = self._find_partitions(records, topics)
        missing = {(topic, partition) for topic in topics for partition in self._missing[topic]}
        self._sent = missing.intersection(zip(map(_TOPIC, records), partitions, strict=True))
        if not self._sent:
            return [], records
        keys = list(zip(map(_TOPIC, records), partitions, strict=True))
        rows = {keys.index(key) for key in self._sent}
        first = [records[row] for row in sorted(rows)]
        return first, [record for row, record in enumerate(records) if row not in rows]

    def confirm(self) -> None:
        """Note that the first records of the last division were written."""
        for topic, partition in self._sent:
            self._missing[topic].discard(partition)

    def forget_old(self) -> None:
        """Forget the partitions before brokers forget the producer. Must not be called while records are sent."""
        if self._clock() > self._since + _MAX_AGE_S:
            self._missing, self._since = {}, self._clock()

    def _find_missing(self, topic: str) -> set[int]:
        if topic not in self._missing or not self._counts[topic]:
            self._counts[topic] = self._count_partitions(topic)
            self._missing[topic] = set(range(self._counts[topic])) or {_ANY}
        return self._missing[topic]

    def _find_partitions(self, records: list[RecordFields], topics: set[str]) -> tuple[list[RecordFields], list[int]]:
        """Return the records of ``topics`` with their partitions. For records of other topics, these are not used."""
        names, keys, partitions = (list(map(column, records)) for column in (_TOPIC, _KEY, _PARTITION))
        rows = [row for row, partition in enumerate(partitions) if partition < 0 and names[row] in topics]
        keyed = [row for row in rows if keys[row] is not None] if None in keys else rows
        for row, value in zip(keyed, hash_keys([keys[row] for row in keyed]), strict=True):
            partitions[row] = value % (self._counts[names[row]] or 1)
        if len(keyed) < len(rows):
            records = records.copy()
            for row in rows:
                record, count = records[row], self._counts[records[row][0]]
                if record[2] is None and count:
                    partitions[row] = row // STICKY_RECORDS % count
                    records[row] = (*record[:3], partitions[row], *record[4:])
        unknown = {topic for topic in topics if not self._counts[topic]}
        if unknown:
            partitions = [
                _ANY if record[0] in unknown else partition
                for record, partition in zip(records, partitions, strict=True)
            ]
        return records, partitions


def hash_keys(keys: Sequence[bytes]) -> list[int]:
    """Return the lower 31 bits of the murmur2 hash of each key; faster than ``topology.murmur2``."""
    lengths: Any = np.fromiter(map(len, keys), np.int64, len(keys))
    hashes: Any = np.empty(len(keys), np.uint32)
    m = np.uint32(0x5BD1E995)
    for length in set(lengths.tolist()):
        rows: Any = np.flatnonzero(lengths == length)
        of_length = [keys[row] for row in rows.tolist()] if len(rows) < len(keys) else keys
        padding = bytes(-length % 4)
        words = np.frombuffer(padding.join([*of_length, b""]), "<u4").reshape(len(rows), -1).T
        h: Any = np.full(len(rows), 0x9747B28C ^ length, np.uint32)
        for k in words[: length // 4]:
            k = k * m
            h = h * m ^ (k ^ k >> 24) * m
        if padding:
            h = (h ^ words[-1]) * m
        h = (h ^ h >> 13) * m
        hashes[rows] = h ^ h >> 15
    found: list[int] = (hashes & 0x7FFFFFFF).tolist()
    return found
