"""Rows of an application's query: one row per partition and batch, with the range that the operator fetches.

The query's stateful operator has one key per stream task. Spark shuffles rows by the hash of their key, so the keys
are integers that are chosen such that stream task ``i`` is processed by Spark partition ``i`` modulo the number of
partitions.

Source: Spark 4.3 Murmur3Hash and Pmod, as used by HashPartitioning.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pyarrow as pa

from zkconsumer.errors import StreamsError
from zkconsumer.log import get_logger
from zkconsumer.spark.executor.decoders import BatchDecoder, PlannedRange
from zkconsumer.spark.streams.fetching import FetchRange

#: Columns of the rows that the operator receives; ``task`` is the key. There are two kinds of rows. A range row has the
#: end of a partition's range (``until``), its lag after the batch, the planning time (``first_offset``), and in
#: ``blob`` a pickled ``FetchRange``, unless the range is empty. A tick row has no topic; ``first_offset`` is the time
#: of the tick, and ``blob`` contains the end offsets of the global store topics.
COLUMNS = "task int, topic string, partition int, first_offset bigint, lag bigint, blob binary, until bigint"

#: Format name of the sink.
SINK_FORMAT = "zkconsumer-topics"

#: Option of ``RangePacker`` with the task keys by topic and partition, as JSON.
KEYS_OPTION = "keys"

_MASK = 0xFFFFFFFF


def choose_keys(tasks: int, partitions: int) -> list[int]:
    """Return a key for each task, such that Spark sends task ``i`` to partition ``i`` modulo ``partitions``."""
    keys: list[list[int]] = [[] for _ in range(partitions)]
    needed = -(-tasks // partitions)
    candidate = 0
    while any(len(found) < needed for found in keys[:tasks]):
        found = keys[hash_of_int(candidate) % partitions]
        if len(found) < needed:
            found.append(candidate)
        candidate += 1
    return [keys[task % partitions][task // partitions] for task in range(tasks)]


def hash_of_int(number: int) -> int:
    """Return Spark's hash (seed 42) of an integer, as a signed 32-bit integer."""
    mixed = (number & _MASK) * 0xCC9E2D51 & _MASK
    mixed = _rotate(mixed, 15) * 0x1B873593 & _MASK
    state = (_rotate(42 ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    state ^= 4  # length of the integer in bytes
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


def _rotate(number: int, bits: int) -> int:
    return (number << bits | number >> 32 - bits) & _MASK


def encode_keys(keys: Mapping[str, Sequence[int]]) -> str:
    """Return the value of the decoder option ``KEYS_OPTION``.

    Args:
        keys: task key of each partition, by topic.
    """
    return json.dumps({topic: list(of_topic) for topic, of_topic in keys.items()})


def to_blob(batch: pa.RecordBatch) -> bytes:
    """Serialize an Arrow batch to bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def from_blob(blob: bytes) -> pa.Table:
    """Return the records that ``to_blob`` serialized, as a table."""
    return pa.ipc.open_stream(blob).read_all()


class RangePacker(BatchDecoder):
    """Returns a row for each range, with which the operator fetches the records.

    A batch that was planned before a sub-topology was removed contains its topics. Their ranges are dropped.
    """

    schema: ClassVar[str] = COLUMNS

    def open(self, options: Mapping[str, str]) -> None:
        """Read the task keys from the options."""
        self._keys: dict[str, list[int]] = json.loads(options[KEYS_OPTION])
        self._log = get_logger("zkconsumer.spark")

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Not called, because the source fetches no records (``plannedRanges=only``)."""
        raise NotImplementedError

    def decode_range(self, planned: PlannedRange) -> pa.RecordBatch | None:
        """Return the row of a range; None if its topic was removed.

        Raises:
            StreamsError: the partition was added after the query started.
        """
        topic, number = planned.partition
        keys = self._keys.get(topic)
        if keys is None:
            self._log.warning("removed_topic_skipped", topic=topic, partition=number, offset=planned.until)
            return None
        if number >= len(keys):
            raise StreamsError(f"topic {topic!r} has new partition {number}, which the running query does not read")
        row = {
            "task": keys[number],
            "topic": topic,
            "partition": number,
            "first_offset": planned.planned_ms,
            "lag": planned.lag,
            "blob": None if planned.fetch is None else pickle.dumps(FetchRange.of(planned.fetch)),
            "until": planned.until,
        }
        return pa.RecordBatch.from_pylist([row])
