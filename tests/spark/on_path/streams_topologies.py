"""Topologies that workers import."""

from __future__ import annotations

import threading

from zkconsumer.topology import Processor, ProcessorContext, PunctuationType, Record, Topology, serdes, stores


class CountWithTotals(Processor):
    """Forwards the count of each key, and the totals at each second of stream time."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.counts = context.get_state_store("counts")
        context.schedule(1_000, PunctuationType.STREAM_TIME, self.forward_totals)

    def process(self, record: Record) -> None:
        if record.value == "fail":
            raise ValueError("planned")
        count = (self.counts.get(record.value) or 0) + 1
        self.counts.put(record.value, count)
        self.context.forward(Record(record.value, count, record.timestamp))

    def forward_totals(self, now_ms: int) -> None:
        total = sum(count for _, count in self.counts.all())
        self.context.forward(Record("total", total, now_ms))


def counting(source: str, sink: str) -> Topology:
    return (
        Topology()
        .add_source("source", source, value_deserializer=serdes.STRING.deserialize)
        .add_processor(
            "count", CountWithTotals, "source", stores=[stores.key_value("counts", serdes.STRING, serdes.LONG)]
        )
        .add_sink("sink", sink, "count", key_serializer=serdes.STRING.serialize, value_serializer=serdes.LONG.serialize)
    )


def copying(pattern: str, sink: str) -> Topology:
    """Copy the topics that match a pattern."""
    return Topology().add_source("source", pattern=pattern).add_sink("sink", sink, "source")


class Remember(Processor):
    """Stores the length of each value under its first letter."""

    def init(self, context: ProcessorContext) -> None:
        self.store = context.get_state_store("lengths")

    def process(self, record: Record) -> None:
        self.store.put(record.value[:1], len(record.value))


class Look(Processor):
    """Forwards the stored length of each value's first letter; -1 without one."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.store = context, context.get_state_store("lengths")

    def process(self, record: Record) -> None:
        length = self.store.get(record.value[:1])
        self.context.forward(Record(record.value, -1 if length is None else length, record.timestamp))


def looking(source: str, words: str, sink: str) -> Topology:
    lengths = stores.key_value("lengths", serdes.STRING, serdes.LONG, logging=False)
    decode = serdes.STRING.deserialize
    return (
        Topology()
        .add_global_store(lengths, "words", words, "remember", Remember, value_deserializer=decode)
        .add_source("source", source, value_deserializer=decode)
        .add_processor("look", Look, "source")
        .add_sink("sink", sink, "look", key_serializer=serdes.STRING.serialize, value_serializer=serdes.LONG.serialize)
    )


class CountWithTicks(Processor):
    """Forwards counts and totals as ``CountWithTotals``, and the total at each two seconds of the wall clock.

    The key of all records is the id of the task.
    """

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.counts = context.get_state_store("counts")
        self.ticks = context.remember("ticks", 0)
        context.schedule(1_000, PunctuationType.STREAM_TIME, self.forward_totals)
        context.schedule(2_000, PunctuationType.WALL_CLOCK_TIME, self.forward_ticks)

    def process(self, record: Record) -> None:
        count = (self.counts.get(record.value) or 0) + 1
        self.counts.put(record.value, count)
        self.forward(f"{record.value} = {count}", record.timestamp)

    def forward_totals(self, now_ms: int) -> None:
        self.forward(f"total {self.add()}", now_ms)

    def forward_ticks(self, now_ms: int) -> None:
        self.ticks.value += 1
        self.forward(f"tick {self.ticks.value}: {self.add()}", now_ms)

    def add(self) -> int:
        return sum(count for _, count in self.counts.all())

    def forward(self, value: str, time_ms: int) -> None:
        self.context.forward(Record(self.context.task_id, value, time_ms))


def ticking(source: str, sink: str) -> Topology:
    serialize = serdes.STRING.serialize
    return (
        Topology()
        .add_source("source", source, value_deserializer=serdes.STRING.deserialize)
        .add_processor(
            "count", CountWithTicks, "source", stores=[stores.key_value("counts", serdes.STRING, serdes.LONG)]
        )
        .add_sink("sink", sink, "count", key_serializer=serialize, value_serializer=serialize)
    )


def ticking_without_pickle(source: str, sink: str) -> Topology:
    """Return the topology ``ticking`` with a supplier that cannot be pickled."""
    topology, lock = ticking(source, sink), threading.Lock()

    def create() -> CountWithTicks:
        with lock:
            return CountWithTicks()

    return topology.add_processor("locked", create, "source").connect_processor_and_state_stores("locked", "counts")


def ticking_with_two_sources(first: str, second: str, sink: str) -> Topology:
    serialize = serdes.STRING.serialize
    return (
        Topology()
        .add_source("first", first, value_deserializer=serdes.STRING.deserialize)
        .add_source("second", second, value_deserializer=serdes.STRING.deserialize)
        .add_processor(
            "count", CountWithTicks, "first", "second", stores=[stores.key_value("counts", serdes.STRING, serdes.LONG)]
        )
        .add_sink("sink", sink, "count", key_serializer=serialize, value_serializer=serialize)
    )


def repartitioning(source: str, sink: str) -> Topology:
    """Count words in a second sub-topology, behind the internal topic ``words``."""
    deserialize, counts = serdes.STRING.deserialize, stores.key_value("counts", serdes.STRING, serdes.LONG)
    return (
        Topology()
        .add_source("source", source)
        .add_internal_topic("words")
        .add_sink("repartition", "words", "source")
        .add_source("words", "words", value_deserializer=deserialize)
        .add_processor("count", CountWithTotals, "words", stores=[counts])
        .add_sink("sink", sink, "count", key_serializer=serdes.STRING.serialize, value_serializer=serdes.LONG.serialize)
    )


class Buffer(Processor):
    """Stores records, and forwards them at the next tick."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.buffer = context, context.get_state_store("buffer")
        context.schedule(1, PunctuationType.WALL_CLOCK_TIME, self.flush)

    def process(self, record: Record) -> None:
        self.buffer.put(record.value, record.value)

    def flush(self, now_ms: int) -> None:
        for key, value in list(self.buffer.all()):
            self.context.forward(Record(key, value, now_ms))
            self.buffer.delete(key)


def buffering(source: str, middle: str, sink: str) -> Topology:
    """Copy a topic to a second one at each tick, and the second one to a third one."""
    return (
        Topology()
        .add_source("source", source)
        .add_processor("buffer", Buffer, "source", stores=[stores.key_value("buffer", serdes.BYTES, serdes.BYTES)])
        .add_sink("to-middle", middle, "buffer")
        .add_source("middle", middle)
        .add_sink("sink", sink, "middle")
    )


class Fail(Processor):
    """Fails on each record."""

    def process(self, record: Record) -> None:
        raise ValueError(f"planned: {record.value!r}")


def copying_and_failing(source: str, failing: str | None, sink: str) -> Topology:
    """Copy a topic; a second sub-topology fails on each record of another topic."""
    topology = Topology().add_source("source", source).add_sink("sink", sink, "source")
    if failing is not None:
        topology.add_source("failing", failing).add_processor("fail", Fail, "failing")
    return topology


class Wait(Processor):
    """Waits half a minute for each record."""

    def process(self, record: Record) -> None:
        del record
        threading.Event().wait(30)


def waiting(source: str) -> Topology:
    """Process a topic slowly."""
    return Topology().add_source("source", source).add_processor("wait", Wait, "source")
