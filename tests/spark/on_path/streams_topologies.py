"""Topologies that workers import."""

from __future__ import annotations

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
