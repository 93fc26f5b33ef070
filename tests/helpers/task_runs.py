"""Runs a task with random records, and prints what it did; ``ZKCONSUMER_PURE=1`` selects the modules in Python.

``python -m task_runs SEED`` prints the same lines with the compiled modules and with those in Python.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SourceRecord,
    TaskRuntime,
    Topology,
    handlers,
    serdes,
    stores,
    timestamps,
)
from zkconsumer.topology.loop import native as loop
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores import MemoryPages, StateStore

SERDES: dict[str, Serde] = {
    "a": serdes.STRING,
    "b": serdes.LONG,
    "c": serdes.INTEGER,
    "d": serdes.DOUBLE,
}


class Counting(Processor):
    """Counts records by key, forwards, fails and schedules, as the records say."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        self._counts = context.get_state_store("counts")
        context.schedule(70, PunctuationType.STREAM_TIME, self._punctuate)

    def process(self, record: Record) -> None:
        context = self._context
        name = repr(record.key)
        count = (self._counts.get(name) or 0) + 1
        self._counts.put(name, count)
        context.forward(record)
        if count % 7 == 0:
            changed = record.with_key(name).with_value(count).with_headers([*record.headers, ("count", b"%d" % count)])
            context.forward(changed, "counts-out")
        if count % 11 == 0:
            context.count("elevens")
            context.forward(record.with_timestamp(record.timestamp // 2), "every-out")
        if count % 13 == 0:
            raise ValueError(f"count {count}")
        if count % 17 == 0:
            context.forward(record, "absent")
        if count % 19 == 0:
            context.schedule(5 + count, PunctuationType.STREAM_TIME, self._punctuate)

    def _punctuate(self, now_ms: int) -> None:
        self._context.forward(Record("punctuated", now_ms, now_ms), "counts-out")


def create_topology(topics: str) -> Topology:
    """Return a topology with a source for each topic and several sinks."""
    topology = Topology()
    for topic in topics:
        serde = SERDES[topic]
        topology.add_source(
            f"source-{topic}", topic, key_deserializer=serdes.STRING.deserialize, value_deserializer=serde.deserialize
        )
        # Sinks of a source, without a processor in between.
        topology.add_sink(
            f"copy-{topic}",
            f"copy-{topic}",
            f"source-{topic}",
            key_serializer=serdes.STRING.serialize,
            value_serializer=serde.serialize,
        )
    counts = stores.key_value("counts", serdes.STRING, serdes.LONG)
    topology.add_processor("count", Counting, *(f"source-{topic}" for topic in topics), stores=[counts])
    topology.add_sink(
        "counts-out",
        "counts",
        "count",
        key_serializer=serdes.STRING.serialize,
        value_serializer=serdes.LONG.serialize,
    )
    topology.add_sink(
        "every-out",
        lambda record, _metadata: f"topic-{record.timestamp % 3}",
        "count",
        key_serializer=serdes.JSON.serialize,
        value_serializer=serdes.JSON.serialize,
        partitioner=lambda _topic, _key, _value, count: None if _value is None else {0, count - 1},
    )
    topology.add_sink(
        "long-out",
        "longs",
        "count",
        key_serializer=serdes.STRING.serialize,
        value_serializer=serdes.LONG.serialize,
    )
    return topology


def create_records(rng: random.Random, topic: str, count: int) -> Iterator[SourceRecord]:
    """Return records with ascending offsets, of which a few are not valid."""
    offset = time = 0
    step = rng.choice((0, 0, 1, 5))
    has_headers, is_bad = rng.random() < 0.5, rng.random() < 0.7
    for _ in range(count):
        offset += rng.choice((1, 1, 1, 7))
        time = max(0, time + rng.choice((0, step, step, -step, 2 * step)))
        number = rng.randrange(1_000)
        value: bytes | None = {
            "a": f"text \u20ac {number}".encode(),
            "b": struct.pack(">q", number - 500),
            "c": struct.pack(">i", number - 500),
            "d": struct.pack(">d", number / 7),
        }[topic]
        timestamp = time
        if is_bad and rng.random() < 0.003:
            value = rng.choice((b"\xff", None))
        if is_bad and rng.random() < 0.001:
            timestamp = -1
        headers = ((f"h{number % 3}", b"%d" % number), ("none", None)) if has_headers and number % 5 == 0 else ()
        key = rng.choice((b"", None, b"k%d" % (number % 40)))
        yield SourceRecord(topic, 0, offset, timestamp, key, value, headers)


def to_batch(records: list[SourceRecord]) -> Any:
    """Return records as an Arrow record batch."""
    headers = [[{"key": name, "value": value} for name, value in record.headers] for record in records]
    return pa.record_batch(
        {
            "offset": pa.array([record.offset for record in records], pa.int64()),
            "timestamp": pa.array([record.timestamp for record in records], pa.int64()),
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "headers": pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )


def run(seed: int) -> Iterator[str]:
    """Run a task, and return descriptions of what it did."""
    rng = random.Random(seed)
    topics = "abcd"[: rng.randrange(1, 5)]
    fails = rng.random() < 0.2
    log, quarantine = handlers.log_and_continue, handlers.quarantine
    config = ApplicationConfig(
        deserialization_handler=rng.choice((log, quarantine)),
        processing_handler=handlers.fail if fails else rng.choice((log, quarantine)),
        production_handler=rng.choice((log, quarantine)),
        max_task_idle_ms=rng.choice((-1, 0)),
        quarantine_topic="quarantine",
        timestamp_extractor=rng.choice(
            (timestamps.fail_on_invalid, timestamps.skip_on_invalid, timestamps.partition_time_on_invalid)
        ),
    )
    pages: dict[str, MemoryPages] = {}

    def pages_of(store: StateStore) -> MemoryPages:
        return pages.setdefault(store.name, MemoryPages())

    runtime = TaskRuntime(
        clock=lambda: 1_000, pages=pages_of, commit=int, rollback=int, partition_count=lambda _topic: 3
    )
    task = create_topology(topics).combine().task(0, config, runtime)
    task.initialize()
    waiting = {topic: list(create_records(rng, topic, rng.choice((30, 300, 900)))) for topic in topics}
    try:
        while any(waiting.values()):
            for topic, records in waiting.items():
                count = rng.choice((0, 1, 10, 200))
                some, waiting[topic] = records[:count], records[count:]
                if some and rng.random() < 0.5:
                    task.add_columns(TopicPartition(topic, 0), to_batch(some))
                else:
                    task.add_records(TopicPartition(topic, 0), some)
            task.update_lags()
            processed = task.run(rng.choice((None, None, 1, 50)))
            output = task.take_output()
            batch = output.to_arrow()
            times = [queue.time_ms for queue in task._group.queues.values()]
            yield f"processed {processed}, queued {task.queued}, times {times}, {task.stream_time_ms}"
            yield f"offsets {task.committable()}, output {batch.serialize().to_pybytes().hex()}"
            yield from map(str, output.records())
            if rng.random() < 0.3:
                task.commit()
            if rng.random() < 0.1:
                task.snapshot()
        task.run()
        yield from map(str, task.take_output().records())
        yield f"snapshot {task.snapshot().hex()}"
        task.commit()
    except StreamsError as error:
        yield f"failed: {error}"
    yield f"metrics { {name: number for name, number in task.metrics.items() if not name.endswith('nanoseconds')} }"
    yield f"pages {[(name, sorted(found.items())) for name, found in pages.items()]}"


def main() -> None:
    print(f"Record of {type(loop.Record.with_key).__name__}")
    for seed in map(int, sys.argv[1:]):
        print(f"seed {seed}")
        for line in run(seed):
            print(line)


if __name__ == "__main__":
    main()
