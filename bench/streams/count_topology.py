"""The topologies of the benchmark application for zkconsumer. Spark workers import this module."""

from __future__ import annotations

from zkconsumer.topology import Processor, ProcessorContext, Record, Topology, serdes, stores


class Count(Processor):
    """Counts the records of each key.

    It forwards each count or, if the store is cached, the last count of each key on commit.
    """

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        self._context = context
        self._store = context.get_state_store("counts")
        self._is_cached = self._store.set_flush_listener(self._forward_change)

    def process(self, record: Record) -> None:
        """Count a record."""
        count = (self._store.get(record.key) or 0) + 1
        self._store.put(record.key, count)
        if not self._is_cached:
            self._context.forward(record.with_value(count))

    def _forward_change(self, change: Record) -> None:
        self._context.forward(change.with_value(change.value.new))


class Keep(Processor):
    """Stores the last value of each key, and forwards the value 1 for each record."""

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        self._context = context
        self._store = context.get_state_store("values")

    def process(self, record: Record) -> None:
        """Store the value of the record, and forward the record with value 1."""
        self._store.put(record.key, record.value)
        self._context.forward(record.with_value(1))


def create_values_topology(source: str, sink: str) -> Topology:
    """Return the topology that stores the last value of each key."""
    return (
        Topology()
        .add_source("source", source)
        .add_processor("keep", Keep, "source", stores=[stores.key_value("values")])
        .add_sink("sink", sink, "keep", value_serializer=serdes.LONG.serialize)
    )


def create_topology(source: str, sink: str, is_cached: bool) -> Topology:
    """Return the topology that counts the records of each key."""
    store = stores.key_value("counts", value=serdes.LONG, caching=is_cached)
    return (
        Topology()
        .add_source("source", source)
        .add_processor("count", Count, "source", stores=[store])
        .add_sink("sink", sink, "count", value_serializer=serdes.LONG.serialize)
    )
