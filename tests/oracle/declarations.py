"""Topologies that are data; ``OracleRunner.java`` declares the same with Kafka Streams."""

from __future__ import annotations

from functools import partial
from typing import Any

from zkconsumer.topology import Record, RecordMetadata, SourceRecord, Topology, serdes, stores
from zkconsumer.topology.stores import StoreBuilder

from .processors import Program
from .store_calls import show

Json = Any


def read(_topic: str, data: bytes | None) -> str | None:
    """Deserialize text; fail for text with ``!bad``."""
    text = None if data is None else data.decode()
    if text is not None and "!bad" in text:
        raise ValueError("bad")
    return text


def write(_topic: str, text: str | None) -> bytes | None:
    """Serialize text; fail for text with ``!out``."""
    if text is not None and "!out" in text:
        raise ValueError("out")
    return None if text is None else text.encode()


def extract(record: SourceRecord, _key: Any, value: Any, partition_time_ms: int) -> int:
    """Return the timestamp of the record, a negative one for ``!neg``, the time of the partition for ``!prev``."""
    if "!neg" in str(value):
        return -1
    return max(partition_time_ms, 0) if "!prev" in str(value) else record.timestamp


def by_key(record: Record, _metadata: RecordMetadata) -> str:
    """Select the topic ``out-`` and the key."""
    return f"out-{show(record.key)}"


def by_length(topic: str, key: Any, value: Any, partitions: int) -> set[int] | int | None:
    """Select the producer's choice, no partition, one or two, by the length of key and value; fail for ``!part``.

    A record that cannot be serialized has one partition, because Kafka Streams counts it for each of them.
    """
    text = show(key) + show(value)
    if "!part" in text:
        raise ValueError("part")
    length = len(text) + len(topic)
    match length % 5:
        case 0:
            return None
        case 1:
            return set()
        case 2:
            return {0} if "!out" in text else {partitions - 1, 0}
    return length % partitions


class Declarations:
    """The calls that build a topology."""

    def __init__(self, steps: list[Json]) -> None:
        self.topology = Topology()
        self.kinds: dict[str, str] = {}
        self._builders: dict[str, StoreBuilder] = {}
        for step in steps:
            getattr(self, f"_{step['call']}")(step)

    def _source(self, step: Json) -> None:
        self.topology.add_source(
            step.get("name"),
            step.get("topics") or (),
            pattern=step.get("pattern"),
            offset_reset=step.get("reset"),
            timestamp_extractor=extract,
            key_deserializer=read,
            value_deserializer=read,
        )

    def _processor(self, step: Json) -> None:
        program = step.get("program", {})
        self.topology.add_processor(step.get("name"), partial(Program, program, self.kinds), *step["parents"])

    def _shared(self, step: Json) -> None:
        same = Program({}, self.kinds)
        self.topology.add_processor(step["name"], lambda: same, *step["parents"])

    def _sink(self, step: Json) -> None:
        topic = step["topic"] if step.get("topic") is not None else by_key
        self.topology.add_sink(
            step.get("name"),
            topic,
            *step["parents"],
            key_serializer=write,
            value_serializer=write,
            partitioner=by_length if step.get("partitioned") else None,
        )

    def _store(self, step: Json) -> None:
        self.topology.add_state_store(self._builder(step["store"]), *step["processors"])

    def _connect(self, step: Json) -> None:
        self.topology.connect_processor_and_state_stores(step["processor"], *step["stores"])

    def _global(self, step: Json) -> None:
        program = step.get("program", {})
        self.topology.add_global_store(
            self._builder(step["store"]),
            step["source"],
            step["topic"],
            step["processor"],
            partial(Program, program, self.kinds),
            key_deserializer=read,
            value_deserializer=read,
        )

    def _builder(self, store: Json) -> StoreBuilder:
        self.kinds[store["name"]] = store["kind"]
        if store["id"] not in self._builders:
            self._builders[store["id"]] = new_builder(store)
        return self._builders[store["id"]]


def new_builder(store: Json) -> StoreBuilder:
    """Return the builder of a store."""
    name, text = store["name"], serdes.STRING
    options = {"logging": store.get("logging", True), "persistent": store.get("persistent", True)}
    if store["kind"] != "versioned":
        options["caching"] = store.get("caching", False)
    retention, size, duplicates = store.get("retention", 0), store.get("size", 0), store.get("duplicates", False)
    match store["kind"]:
        case "key_value":
            return stores.key_value(name, text, text, **options)
        case "timestamped":
            return stores.timestamped_key_value(name, text, text, **options)
        case "versioned":
            return stores.versioned_key_value(name, text, text, history_ms=retention, **options)
        case "session":
            return stores.session(name, text, text, retention_ms=retention, **options)
        case kind:
            make = stores.window if kind == "window" else stores.timestamped_window
            return make(
                name,
                text,
                text,
                retention_ms=retention,
                window_size_ms=size,
                retain_duplicates=duplicates,
                **options,
            )
