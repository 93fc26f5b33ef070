"""Fuzz the way of records from a broker's socket to messages: ``python -m tests.fuzz.wire --seconds 30``.

A server on a socket returns the log of a partition, and one of its responses is changed: a bit, a byte, a number in a
header, some bytes more or less, or its size. A fetcher thread and the decoder read it. Either an error is reported, or
exactly the records of the log are read; records that were read before an error are the first ones of the log. The next
offset to read after an error is that of the next record, and the offset after a skipped batch is the end of a batch.

The exit status is 1 if an execution did something else. Execution ``n`` of a seed changes the same bytes each time.
"""

from __future__ import annotations

import argparse
import logging
import random
import struct
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers import batches
from helpers.batches import Record
from helpers.fake_broker import API_VERSIONS, FETCH, LIST_OFFSETS, PARTITION, FakeBroker

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import CorruptRecordError, ZkConsumerError
from zkconsumer.fetcher.arrow import ArrowReader
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.decode import read_messages
from zkconsumer.fetcher.fetch_settings import FetchSettings
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.queues import ByteBudget, PartitionQueue, StreamQueue
from zkconsumer.fetcher.requests import FetchRequests
from zkconsumer.fetcher.thread import ConsumerFetcherThread
from zkconsumer.metrics import Metrics

from .corpus import random_records

#: Seconds after which an execution that reports nothing counts as stalled.
_STALLED_S = 30.0

#: Maximum seconds for a request; a response with a size that is too large takes this long.
_REQUEST_TIMEOUT_S = 0.3

#: Positions and formats of the header fields that no CRC covers: offset, size and, in format 2, leader epoch.
_UNCHECKED_FIELDS = ((0, ">q"), (8, ">i"), (12, ">i"))

#: Bytes of the offset at the start of an entry.
_OFFSET_BYTES = 8

_CORNERS = (0, 1, -1, 7, 60, 100, 1 << 16, 1 << 30, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))


class Row(NamedTuple):
    """What is compared of a record."""

    offset: int
    key: bytes | None
    value: bytes | None


class Log(NamedTuple):
    """The entries of a log, with the offset after each, and its records."""

    entries: list[tuple[bytes, int]]
    rows: list[Row]


def make_log(rng: random.Random, magic: int) -> Log:
    """Return a log without gaps. In a gap, a wrong offset cannot be detected."""
    entries: list[tuple[bytes, int]] = []
    rows: list[Row] = []
    for _ in range(rng.randrange(1, 7)):
        count = rng.randrange(1, 9) if magic == 2 else 1
        start = len(rows)
        found = random_records(rng, start, count, 40)
        records = [Record(start + i, *record[1:]) for i, record in enumerate(found)]
        codec = rng.choice(batches.CODECS[magic]) if magic == 2 else batches.NONE
        entries.append((batches.entry(magic, records, codec), start + count))
        rows += [Row(record.offset, record.key, record.value) for record in records]
    return Log(entries, rows)


def find_fetch_size(sizes: list[int]) -> int:
    """Return the smallest fetch size whose responses contain an entry, and the offset of the next one if there is one.

    A wrong offset of the last entry cannot be detected in a response that ends before the next offset.

    Args:
        sizes: sizes of the entries of the log, in bytes.
    """
    size = max(sizes) + _OFFSET_BYTES
    while not all(_contains_next_offset(sizes[first:], size) for first in range(len(sizes))):
        size += 1
    return size


def _contains_next_offset(sizes: list[int], size: int) -> bool:
    for entry in sizes:
        if size < entry:
            return size >= _OFFSET_BYTES
        size -= entry
    return True


class Change:
    """Changes one response of a kind, or all of them, in the same way.

    Attributes:
        is_made: whether a response was changed.
    """

    def __init__(self, rng: random.Random, log: Log) -> None:
        self.is_made = False
        self.is_permanent = rng.random() < 0.5
        self._kind = rng.choice((*[FETCH] * 16, LIST_OFFSETS, API_VERSIONS))
        self._skipped = rng.choice((0, 0, 0, 1, 2))
        self._in_frame = rng.random() < 0.05
        self._seed = rng.random()
        self._log = log

    def body(self, key: int, _request: Any, body: bytes) -> bytes:
        """Change the part of a response after the correlation id."""
        return body if self._in_frame else self._changed(key, body)

    def frame(self, key: int, frame: bytes) -> bytes:
        """Change a complete response."""
        return self._changed(key, frame) if self._in_frame else frame

    def _changed(self, key: int, data: bytes) -> bytes:
        if key != self._kind or (self.is_made and not self.is_permanent):
            return data
        if self._skipped:
            self._skipped -= 1
            return data
        self.is_made = True
        rng = random.Random(self._seed)
        changed = bytearray(data)
        at = rng.randrange(len(data))
        match rng.randrange(8):
            case 0 | 1 | 2:
                changed[at] ^= 1 << rng.randrange(8)
            case 3:
                changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 4:
                del changed[at : at + rng.choice((1, 2, 4, 8, 61))]
            case 5:
                changed[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8, 61)))
            case _:
                self._change_header(rng, changed)
        return bytes(changed)

    def _change_header(self, rng: random.Random, data: bytearray) -> None:
        """Change a field of an entry's header that no CRC covers, to a corner value or by a little."""
        entry, _ = rng.choice(self._log.entries)
        start = data.find(entry[:61])
        if start < 0:
            return
        position, fmt = rng.choice(_UNCHECKED_FIELDS)
        (value,) = struct.unpack_from(fmt, data, start + position)
        value = rng.choice((*_CORNERS, value + 1, value - 1, value + rng.randrange(-20, 20), value ^ 1 << 20))
        limit = 1 << 8 * struct.calcsize(fmt) - 1
        struct.pack_into(fmt, data, start + position, (value + limit) % (2 * limit) - limit)


class Reading:
    """Reads the partition up to its end or, if the change is permanent, up to the first error."""

    def __init__(
        self, broker: FakeBroker, log: Log, rng: random.Random, is_permanent: bool, max_slice_rows: int
    ) -> None:
        self.rows: list[Row] = []
        self.errors: list[str] = []
        self._log, self._is_permanent = log, is_permanent
        self._max_slice_rows = max_slice_rows
        self._arrow = ArrowReader(max_slice_rows=max_slice_rows) if rng.random() < 0.5 else None
        self._end = log.entries[-1][1]
        self._stream = StreamQueue(budget := ByteBudget(1 << 30))
        properties = {
            "group.id": "fuzz",
            "zookeeper.connect": "none",
            "fetch.wait.max.ms": 1,
            "fetch.message.max.bytes": rng.choice((find_fetch_size([len(entry) for entry, _ in log.entries]), 1 << 20)),
            "socket.timeout.ms": round(_REQUEST_TIMEOUT_S * 1000),
        }
        settings = FetchSettings.from_config(ConsumerConfig.from_dict(properties))
        self._fetcher = ConsumerFetcherThread(
            "fuzz-fetcher",
            FetchRequests(broker.endpoint, settings, budget, Metrics()),
            settings,
            budget,
            self._on_error,
            self._on_failure,
        )
        self._returned: list[PartitionTopicInfo] = []
        self._has_failed = False

    def _on_error(self, infos: Iterable[PartitionTopicInfo]) -> None:
        self.errors.append("partition returned by its fetcher")
        self._returned += infos

    def _on_failure(self, _info: PartitionTopicInfo, error: ZkConsumerError) -> None:
        self.errors.append(repr(error))
        self._has_failed = True

    def run(self) -> None:
        """Read, and check what was read."""
        deadline = time.monotonic() + _STALLED_S
        self._fetch_from(0)
        self._fetcher.start()
        try:
            while len(self.rows) < self._end and not self._has_failed and not (self._is_permanent and self.errors):
                if time.monotonic() > deadline:
                    raise AssertionError(f"stalled after {len(self.rows)} records")
                while self._returned:
                    if (returned := self._returned.pop()) is self._info:  # else it was replaced, as in the manager
                        self._fetcher.add_partitions([returned])
                taken = self._stream.take(0.01)
                if taken is not None and isinstance(taken[1], Chunk):
                    self._read(taken[1])
        finally:
            self._fetcher.close()
        if self._fetcher.has_ended:
            raise AssertionError(f"the fetcher ended: {self.errors[-1:]}")
        if self.rows != self._log.rows and not self.errors:
            raise AssertionError("records are missing, and no error was reported")

    def _fetch_from(self, offset: int) -> None:
        self._info = PartitionTopicInfo(PARTITION, PartitionQueue(self._stream, 1), offset)
        self._fetcher.add_partitions([self._info])

    def _read(self, chunk: Chunk) -> None:
        if chunk.fetch_offset != len(self.rows):
            return  # fetched before the error
        try:
            for rows in self._decoded(chunk):
                self.rows += rows
                if self.rows != self._log.rows[: len(self.rows)]:
                    raise AssertionError(f"read {rows}, but the log has {self._log.rows}")
        except CorruptRecordError as error:
            self.errors.append(str(error))
            if error.offset != len(self.rows):
                raise AssertionError(f"{len(self.rows)} records were read before the error {error}") from error
            if error.after not in {-1, *(after for _, after in self._log.entries)}:
                raise AssertionError(f"skipping would continue at {error.after} after {error}") from error
            self._fetch_from(error.offset)
        else:
            if chunk.next_offset != len(self.rows):
                raise AssertionError(f"fetching continues at {chunk.next_offset} after {len(self.rows)} records")

    def _decoded(self, chunk: Chunk) -> Iterable[list[Row]]:
        if self._arrow is None:
            for messages, _ in read_messages(chunk, max_rows=3, max_slice_rows=self._max_slice_rows):
                yield [Row(message.offset, message.key, message.value) for message in messages]
            return
        for batch, _ in self._arrow.read(chunk):
            columns = [batch.column(name).to_pylist() for name in ("offset", "key", "value")]
            yield [Row(*row) for row in zip(*columns, strict=True)]


class WireFuzzer:
    """Executes the changes of one seed.

    Attributes:
        reported: number of executions that reported an error.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.reported = 0

    def execute(self, number: int) -> None:
        """Read a log with one change.

        Raises:
            AssertionError: other records than those of the log were read, or none and no error was reported.
        """
        rng = random.Random(f"wire {self.seed} {number}")
        max_slice_rows = rng.choice((3, 65_536))  # with 3, most batches are decoded in slices
        magic = rng.choice((0, 1, 2, 2, 2, 2))
        log = make_log(rng, magic)
        change = Change(rng, log)
        version = rng.randrange(4, 13) if magic == 2 else rng.randrange(4)
        with FakeBroker(log.entries, fetch_version=version, change=change.body) as broker:
            broker.change_frame = change.frame
            broker.high_watermark -= rng.choice((0, 0, 1, broker.end))
            reading = Reading(broker, log, rng, change.is_permanent, max_slice_rows)
            reading.run()
        self.reported += bool(reading.errors)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.wire", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30, help="seconds to run (default: 30)")
    parser.add_argument("--runs", type=int, help="number of executions, instead of --seconds")
    parser.add_argument("--first", type=int, default=0, help="number of the first execution")
    parser.add_argument("--seed", type=int, help="seed of the random numbers (default: random; it is printed)")
    options = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    logging.getLogger("zkconsumer").addHandler(logging.NullHandler())  # else warnings are written to stderr
    print(f"fuzz.wire: seed {seed}", flush=True)
    fuzzer, number, started = WireFuzzer(seed), options.first, time.monotonic()
    while number < options.first + options.runs if options.runs else time.monotonic() - started < options.seconds:
        try:
            fuzzer.execute(number)
        except Exception as error:
            print(
                f"fuzz.wire: execution {number} of seed {seed} failed: {error!r}; to repeat it:\n"
                f"    python -m tests.fuzz.wire --seed {seed} --first {number} --runs 1",
                file=sys.stderr,
            )
            return 1
        number += 1
    count = number - options.first
    print(
        f"fuzz.wire: {count} executions, {fuzzer.reported} with a reported error, "
        f"no fault in {time.monotonic() - started:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
