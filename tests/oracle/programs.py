"""Topologies and scenarios that are data; ``OracleRunner.java`` runs the same with Kafka Streams."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    RecordMetadata,
    Remembered,
    SourceRecord,
    Topology,
    TopologyTestDriver,
    handlers,
    serdes,
    stores,
)
from zkconsumer.topology.stores import StoreBuilder, ValueAndTimestamp, VersionedRecord, Windowed

Json = Any

OUTPUT_HANDLERS = {"fail": handlers.fail, "continue": handlers.log_and_continue}


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
        self.topology.add_sink(step.get("name"), topic, *step["parents"], key_serializer=write, value_serializer=write)

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


class Program(Processor):
    """A processor whose operations are data. It keeps everything in stores and remembered values."""

    def __init__(self, program: Json, kinds: dict[str, str]) -> None:
        self._program, self._kinds = program, kinds
        self._is_initialized = False
        self._context: ProcessorContext
        self._schedules: Remembered

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        #: By name of a schedule: its method, its ordinal, and its operations.
        self._schedules = context.remember("schedules", {})
        self._created: list[str] = []
        self._run(self._program.get("init", ()), None, [])
        self._is_initialized = True

    def process(self, record: Record) -> None:
        self._run(self._program.get("process", ()), record, [])

    def _run(self, operations: Json, record: Any, trace: list[str]) -> None:
        context = self._context
        for operation in operations:
            match operation:
                case ["forward", child, suffix]:
                    context.forward(record.with_value(show(record.value) + suffix), child)
                case ["same", child]:
                    context.forward(record, child)
                case ["emit", child]:
                    context.forward(record.with_value(";".join(trace)), child)
                case ["shift", child, delta]:
                    context.forward(record.with_timestamp(record.timestamp + delta), child)
                case ["header", name, value]:
                    record.headers.append((name, value.encode()))
                case ["when", marker, body]:
                    if marker in show(record.value):
                        self._run(body, record, trace)
                case ["catch", body]:
                    try:
                        self._run(body, record, trace)
                    except Exception:
                        trace.append("caught")
                case ["fail"]:
                    raise RuntimeError("fail")
                case ["schedule", kind, interval, name, body]:
                    self._schedule(kind, interval, name, body)
                case ["listen", name, sends_old, child]:
                    self._listen(name, sends_old, child)
                case ["cancel", name]:
                    method, ordinal, _ = self._schedules.value.get(name, (None, None, None))
                    handle = context.schedules().get((method, ordinal))
                    if handle is not None:
                        handle.cancel()
                case ["commit"]:
                    context.commit()
                case ["meta"]:
                    metadata = context.record_metadata
                    trace.append("none" if metadata is None else "-".join(show(part) for part in metadata))
                case ["times"]:
                    trace.append(f"{context.current_stream_time_ms}/{context.current_system_time_ms}")
                case ["store", name, method, *arguments]:
                    trace.append(self._call(name, method, [argument(a, record) for a in arguments], record))
                case _:
                    raise AssertionError(operation)

    def _schedule(self, kind: str, interval: int, name: str, body: Json) -> None:
        """Create a schedule, unless there is one with this name; one that ``init`` has created is created again."""
        schedules = self._schedules.value
        if self._is_initialized:
            if name not in schedules:
                schedules[name] = [f"call_{name}", 0, body]
                self._context.schedule(interval, PunctuationType[kind], getattr(self, f"call_{name}"))
        elif name not in self._created:
            ordinal = len(self._created)
            self._created.append(name)
            schedules[name] = ["init", ordinal, body]
            self._context.schedule(interval, PunctuationType[kind], partial(self._punctuate, name))

    def _listen(self, name: str, sends_old: bool, child: str | None) -> None:
        """Forward the changes of a cached store: new and old value, and the metadata of the change."""
        context = self._context

        def forward(change: Record) -> None:
            trace: list[str] = []
            self._run([["meta"]], None, trace)
            text = f"{show(change.value.new)}<{show(change.value.old)} {trace[0]}"
            context.forward(change.with_key(show(change.key)).with_value(text), child)

        context.get_state_store(name).set_flush_listener(forward, sends_old)

    def call_t0(self, now: int) -> None:
        self._punctuate("t0", now)

    def call_t1(self, now: int) -> None:
        self._punctuate("t1", now)

    def call_t2(self, now: int) -> None:
        self._punctuate("t2", now)

    def _punctuate(self, name: str, now: int) -> None:
        self._run(self._schedules.value[name][2], Record("tick", f"{name}@{now}", now), [])

    def _call(self, name: str, method: str, a: list[Any], record: Record) -> str:
        store, kind = self._context.get_state_store(name), self._kinds[name]

        def wrap(value: Any) -> Any:
            return ValueAndTimestamp(value, record.timestamp) if value is not None else None

        put = wrap if kind.startswith("timestamped") else lambda value: value
        calls = {"versioned": versioned, "window": window, "timestamped_window": window, "session": session}
        return calls.get(kind, key_value)(store, method, a, put)


def argument(spec: Json, record: Record) -> Any:
    """Return the value of an argument: a list is relative to the record's timestamp; values are cut to 8 characters."""
    if isinstance(spec, list):
        return max(0, record.timestamp + spec[0])
    match spec:
        case "$k":
            return record.key
        case "$v":
            return None if record.value is None else record.value[:8]
    return spec


def key_value(store: Any, method: str, a: list[Any], wrap: Callable[[Any], Any]) -> str:
    """Call a key-value store."""
    match method:
        case "get" | "delete":
            return show(getattr(store, method)(a[0]))
        case "put":
            store.put(a[0], wrap(a[1]))
            return "put"
        case "put_if_absent":
            return show(store.put_if_absent(a[0], wrap(a[1])))
        case "range" | "reverse_range":
            return entries(store.range(a[0], a[1], reverse=method == "reverse_range"))
        case "all" | "reverse_all":
            return entries(store.all(reverse=method == "reverse_all"))
        case "prefix":
            return entries(store.prefix_scan(a[0].encode()))
        case _:
            found = []
            for key, _value in store.all():
                found.append(key)
                store.delete(key)
            return f"[{', '.join(found)}]"


def versioned(store: Any, method: str, a: list[Any], _wrap: Callable[[Any], Any]) -> str:
    """Call a versioned store."""
    if method == "put":
        return str(store.put(a[0], a[1], a[2]))
    return show(store.delete(a[0], a[1]) if method == "delete" else store.get(*a))


def window(store: Any, method: str, a: list[Any], wrap: Callable[[Any], Any]) -> str:
    """Call a window store."""
    reverse = method.startswith("reverse_")
    match method.removeprefix("reverse_"):
        case "put":
            store.put(a[0], wrap(a[1]), a[2])
            return "put"
        case "fetch":
            return show(store.fetch(a[0], a[1]))
        case "times":
            return entries(store.fetch_times(*a, reverse=reverse))
        case "keys":
            return entries(store.fetch_keys(*a, reverse=reverse))
        case "fetch_all":
            return entries(store.fetch_all(*a))
        case _:
            return entries(store.all(reverse=reverse))


def session(store: Any, method: str, a: list[Any], _wrap: Callable[[Any], Any]) -> str:
    """Call a session store."""
    match method:
        case "put":
            store.put(Windowed(*a[:3]), a[3])
            return "put"
        case "remove":
            store.remove(Windowed(*a))
            return "removed"
        case "fetch_session":
            return show(store.fetch_session(*a))
        case "find":
            return entries(store.find_sessions(*a))
        case "find_keys":
            return entries(store.find_sessions_of_keys(*a))
        case _:
            return entries(store.fetch(a[0]))


def show(value: Any) -> str:
    """Return the text that the other runner uses for a value."""
    match value:
        case ValueAndTimestamp(value=inner, timestamp=time):
            return f"{inner}#{time}"
        case VersionedRecord(value=inner, timestamp=time):  # the JVM's stores do not hand on the end of the validity
            return f"{inner}#{time}"
        case Windowed(key=key, start=start, end=end):
            return f"{key}@{start}/{end}"
    return "null" if value is None else str(value)


def lines(found: Any) -> list[str]:
    """Return the text of each entry."""
    return [f"{show(key)}={show(value)}" for key, value in found]


def entries(found: Any) -> str:
    """Return the text of all entries."""
    return f"[{', '.join(lines(found))}]"


def pickled(topology: Topology) -> Topology:
    """Return a copy of a topology, as another process gets it."""
    copy = pickle.loads(pickle.dumps(topology))
    assert isinstance(copy, Topology)
    return copy


def describe(request: Json) -> Json:
    """Return what the runner answers to a request without events."""
    topology = pickled(Declarations(request["steps"]).topology)
    groups = {
        str(number): {"sources": sorted(group.sources), "sinks": sorted(group.sinks)}
        for number, group in topology.resolve().topic_groups.items()
        if not group.is_global  # Kafka Streams leaves them out
    }
    return {"describe": topology.describe(), "groups": groups}


def run(request: Json, copy: Callable[[Topology], Topology] = pickled) -> Json:
    """Return what the runner answers to a request with events, from a copy of the topology.

    With ``reopen``, the state is in a file, and a new driver with another copy continues with it at the events of these
    numbers.
    """
    declared = Declarations(request["steps"])
    settings = request.get("config", {})
    config = ApplicationConfig(
        key_serde=serdes.STRING,
        value_serde=serdes.STRING,
        max_task_idle_ms=settings.get("idle", 0),
        deserialization_handler=OUTPUT_HANDLERS[settings.get("deserialization", "fail")],
        processing_handler=OUTPUT_HANDLERS[settings.get("processing", "fail")],
        production_handler=OUTPUT_HANDLERS[settings.get("production", "fail")],
    )
    reopen, events = request.get("reopen"), request["events"]
    bounds = [0, *(reopen or ()), len(events)]
    result: Json = {"outputs": [], "dropped": 0, "stores": {}}
    with tempfile.TemporaryDirectory() as folder:
        path = None if reopen is None else f"{folder}/state"
        for part in (events[first:end] for first, end in pairwise(bounds)):
            with TopologyTestDriver(copy(declared.topology), config, state_file=path) as driver:
                dropped_before = driver.metrics["dropped"]
                for event in part:
                    try:
                        apply(driver, event)
                    except StreamsError as error:
                        return {"outputs": result["outputs"], "error": "StreamsException", "text": str(error)}
                    result["outputs"].append(output(driver, request["outputs"]))
                result["dropped"] += driver.metrics["dropped"] - dropped_before
                all_stores = driver.get_all_state_stores()
                result["stores"] = {name: contents(declared.kinds[name], store) for name, store in all_stores.items()}
    return result


def output(driver: TopologyTestDriver, topics: list[str]) -> list[Json]:
    """Return the new records of the output topics."""
    return [
        [
            topic,
            record.key,
            record.value,
            record.timestamp,
            [[name, (value or b"").decode()] for name, value in record.headers],
        ]
        for topic in topics
        for record in driver.create_output_topic(topic).read_records()
    ]


def apply(driver: TopologyTestDriver, event: Json) -> None:
    """Feed an event."""
    if "advance" in event:
        driver.advance_wall_clock_time(event["advance"])
        return
    headers = [(name, value.encode()) for name, value in event.get("headers", ())]
    driver.create_input_topic(event["topic"]).pipe_input(event["key"], event["value"], event["ts"], headers)


def contents(kind: str, store: Any) -> list[str]:
    """Return the entries of a store."""
    match kind:
        case "versioned":
            return []
        case "session":
            return lines(store.fetch_keys())
        case _:
            return lines(store.all())
