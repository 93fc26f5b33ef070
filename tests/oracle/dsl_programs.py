"""Builds pipelines of the DSL from JSON, and runs them, as ``DslRunner.java`` does."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Self

from zkconsumer.errors import StreamsError
from zkconsumer.topology import ApplicationConfig, Serde, Topology, TopologyTestDriver, serdes, stores
from zkconsumer.topology.dsl import (
    Emit,
    KStream,
    Materialized,
    Optimization,
    StreamsBuilder,
    UntilTimeLimit,
    UntilWindowCloses,
    session_windowed,
    time_windowed,
)
from zkconsumer.topology.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows

from . import dsl_functions as functions

#: ``MAX_OUTPUT`` of ``DslRunner.java``.
MAX_OUTPUT = 1 << 22

Json = Any


class Pipeline:
    """The steps of a request. Their results are streams, tables and groups by name."""

    def __init__(self, steps: Iterable[Json]) -> None:
        self.builder = StreamsBuilder()
        self._outputs: dict[str, Any] = {}
        for step in steps:
            result = getattr(self, f"_{step['op']}")(step)
            if step.get("out"):
                self._outputs[step["out"]] = result

    def _in(self, step: Json, name: str = "in") -> Any:
        return self._outputs[step[name]]

    def _stream(self, step: Json) -> Any:
        return self.builder.stream(step.get("topics", ()), pattern=step.get("pattern"), **_serdes(step), **_name(step))

    def _table(self, step: Json) -> Any:
        return self.builder.table(step["topic"], **_serdes(step), **_store(step), **_name(step))

    def _global_table(self, step: Json) -> Any:
        return self.builder.global_table(step["topic"], **_serdes(step), **_store(step), **_name(step))

    def _filter(self, step: Json) -> Any:
        return self._in(step).filter(functions.PREDICATES[step["f"]], **_store(step), **_name(step))

    def _filter_not(self, step: Json) -> Any:
        return self._in(step).filter_not(functions.PREDICATES[step["f"]], **_store(step), **_name(step))

    def _map_values(self, step: Json) -> Any:
        mapper = functions.VALUES[step["f"]]
        return self._in(step).map_values(mapper, with_key=True, **_store(step), **_name(step))

    def _map(self, step: Json) -> Any:
        return self._in(step).map(functions.PAIRS[step["f"]], **_name(step))

    def _select_key(self, step: Json) -> Any:
        return self._in(step).select_key(functions.KEYS[step["f"]], **_name(step))

    def _flat_map(self, step: Json) -> Any:
        return self._in(step).flat_map(functions.chars_as_keys, **_name(step))

    def _flat_map_values(self, step: Json) -> Any:
        return self._in(step).flat_map_values(functions.chars, **_name(step))

    def _peek(self, step: Json) -> Any:
        return self._in(step).peek(functions.ignore, **_name(step))

    def _process(self, step: Json) -> Any:
        return self._in(step).process(functions.AddPlace, **_name(step))

    def _process_values(self, step: Json) -> Any:
        return self._in(step).process_values(functions.AddPlace, **_name(step))

    def _foreach(self, step: Json) -> None:
        self._in(step).foreach(functions.ignore, **_name(step))

    def _merge(self, step: Json) -> Any:
        return self._in(step).merge(self._in(step, "other"), **_name(step))

    def _split(self, step: Json) -> None:
        branches = self._in(step).split(**_name(step))
        for branch in step["branches"]:
            branches.branch(functions.PREDICATES[branch["f"]], **_name(branch))
        found = branches.default_branch() if step.get("default") else branches.no_default_branch()
        for number, name in enumerate(sorted(found)):
            self._outputs[f"{step['outs']}{number}"] = found[name]

    def _repartition(self, step: Json) -> Any:
        return self._in(step).repartition(partitions=step.get("partitions"), **_serdes(step), **_name(step))

    def _to(self, step: Json) -> None:
        self._in(step).to(step["topic"], **_serdes(step), **_name(step))

    def _to_table(self, step: Json) -> Any:
        return self._in(step).to_table(**_store(step), **_name(step))

    def _to_stream(self, step: Json) -> Any:
        return self._in(step).to_stream(functions.KEYS[step["f"]] if step.get("f") else None, **_name(step))

    def _group_by_key(self, step: Json) -> Any:
        return self._in(step).group_by_key(**_serdes(step), **_name(step))

    def _group_by(self, step: Json) -> Any:
        source = self._in(step)
        mapper = functions.KEYS if isinstance(source, KStream) else functions.PAIRS
        return source.group_by(mapper[step["f"]], **_serdes(step), **_name(step))

    def _count(self, step: Json) -> Any:
        return self._in(step).count(**_store(step), **_name(step))

    def _reduce(self, step: Json) -> Any:
        arguments = [functions.reduce] if step["of"] == "stream" else [functions.reduce, functions.subtract]
        return self._in(step).reduce(*arguments, **_store(step), **_name(step))

    def _aggregate(self, step: Json) -> Any:
        arguments = [functions.empty, functions.aggregate]
        if step["of"] != "stream":
            arguments.append(functions.remove)
        return self._in(step).aggregate(*arguments, **_store(step), **_name(step))

    def _windowed_count(self, step: Json) -> Any:
        return self._windowed(step).count(**_store(step), **_name(step))

    def _windowed_reduce(self, step: Json) -> Any:
        return self._windowed(step).reduce(functions.reduce, **_store(step), **_name(step))

    def _windowed_aggregate(self, step: Json) -> Any:
        merger = functions.merge if step["windows"]["kind"] == "session" else None
        arguments = functions.empty, functions.aggregate, merger
        return self._windowed(step).aggregate(*arguments, **_store(step), **_name(step))

    def _windowed(self, step: Json) -> Any:
        emit = Emit.ON_CLOSE if step.get("on_close") else Emit.ON_UPDATE
        return self._in(step).windowed_by(_windows(step["windows"]), emit=emit)

    def _cogroup(self, step: Json) -> Any:
        cogrouped = self._in(step).cogroup(functions.aggregate)
        if step.get("other"):
            cogrouped = cogrouped.cogroup(self._in(step, "other"), functions.other)
        merger = None
        if step.get("windows"):
            cogrouped = cogrouped.windowed_by(_windows(step["windows"]))
            merger = functions.merge if step["windows"]["kind"] == "session" else None
        return cogrouped.aggregate(functions.empty, merger, **_store(step), **_name(step))

    def _suppress(self, step: Json) -> Any:
        if step.get("wait") is None:
            return self._in(step).suppress(UntilWindowCloses(), **_name(step))
        limit = UntilTimeLimit(wait_ms=step["wait"], max_records=step.get("records"), max_bytes=step.get("bytes"))
        return self._in(step).suppress(limit, **_name(step))

    def _join_streams(self, step: Json) -> Any:
        source = self._in(step)
        join = {"left": source.left_join, "outer": source.outer_join}.get(step["kind"], source.join)
        return join(
            self._in(step, "other"),
            functions.joined,
            windows=JoinWindows(before_ms=step["before"], after_ms=step["after"], grace_ms=step["grace"]),
            other_serde=_serde(step["other_value"]),
            store=step.get("base"),
            **_serdes(step),
            **_name(step),
        )

    def _join_table(self, step: Json) -> Any:
        source = self._in(step)
        join = source.left_join if step["kind"] == "left" else source.join
        other, grace_ms = self._in(step, "other"), step.get("grace")
        return join(other, functions.joined, grace_ms=grace_ms, **_serdes(step), **_name(step))

    def _join_global(self, step: Json) -> Any:
        source = self._in(step)
        join = source.left_join if step["kind"] == "left" else source.join
        return join(self._in(step, "other"), functions.joined, key=functions.KEYS[step["f"]], **_name(step))

    def _join_tables(self, step: Json) -> Any:
        source = self._in(step)
        join = {"left": source.left_join, "outer": source.outer_join}.get(step["kind"], source.join)
        return join(self._in(step, "other"), functions.joined, **_store(step), **_name(step))


def _name(step: Json) -> dict[str, Any]:
    return {"name": step["name"]} if step.get("name") is not None else {}


def _serde(kind: str | None) -> Serde | None:
    if kind is None:
        return None
    if kind[0] == "T":
        return time_windowed(serdes.STRING, int(kind[1:]))
    return serdes.LONG if kind == "L" else session_windowed(serdes.STRING) if kind == "W" else serdes.STRING


def _windows(node: Json) -> Any:
    size, grace_ms = node["size"], node["grace"]
    if node["kind"] == "session":
        return SessionWindows(gap_ms=size, grace_ms=grace_ms)
    if node["kind"] == "sliding":
        return SlidingWindows(difference_ms=size, grace_ms=grace_ms)
    return TimeWindows(size_ms=size, advance_ms=node["advance"], grace_ms=grace_ms)


def _serdes(step: Json) -> dict[str, Any]:
    return {f"{name}_serde": _serde(step[name]) for name in ("key", "value") if step.get(name) is not None}


def _store(step: Json) -> dict[str, Any]:
    settings = step.get("store")
    if settings is None:
        return {}
    return {
        "store": Materialized(
            settings.get("name"),
            _serde(settings.get("key")),
            _serde(settings.get("value")),
            retention_ms=settings.get("retention"),
            history_ms=settings.get("history"),
            caching=settings.get("caching", True),
        )
    }


def build(request: Json) -> Topology:
    """Return the topology of a request, as another process gets it."""
    optimization = Optimization.ALL if request.get("optimize") else Optimization.NONE
    topology: Topology = pickle.loads(pickle.dumps(Pipeline(request["steps"]).builder.build(optimization)))
    return topology


def run(request: Json) -> Json:
    """Return what the runner answers.

    With ``reopen``, a new driver with another copy of the topology continues at the events of these numbers.

    Raises:
        StreamsError: a task failed, or the outputs are larger than ``MAX_OUTPUT``.
    """
    topology = build(request)
    answer: Json = {"describe": topology.describe()}
    if "events" not in request:
        return answer
    config = create_config(request)
    events, reopen = request["events"], request.get("reopen", ())
    answer.update(outputs=[], dropped=0)
    size = 0
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/state" if reopen else None
        for first, end in pairwise([0, *reopen, len(events)]):
            with PipelineDriver(build(request), config, state_file=path) as driver:
                before = driver.metrics["dropped"]
                for event in events[first:end]:
                    answer["outputs"].append(driver.feed(event, request["outputs"]))
                    size += _measure(answer["outputs"][-1])
                    if size > MAX_OUTPUT:
                        raise StreamsError(f"the outputs have more than {MAX_OUTPUT} bytes")
                answer["dropped"] += driver.metrics["dropped"] - before
                answer["stores"] = {name: contents(driver.get_state_store(name)) for name in request["stores"]}
    return answer


def create_config(request: Json) -> ApplicationConfig:
    """Return the settings of the application of a request."""
    return ApplicationConfig(
        application_id="app",
        key_serde=serdes.STRING,
        value_serde=serdes.STRING,
        statestore_cache_max_bytes=request.get("cache", 0),
    )


class PipelineDriver(TopologyTestDriver):
    """Feeds events to a pipeline."""

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def feed(self, event: Json, topics: list[str]) -> Json:
        """Feed an event, and return the new records of topics."""
        if "advance" in event:
            self.advance_wall_clock_time(event["advance"])
        else:
            headers = [(name, None if text is None else text.encode()) for name, text in event.get("headers", ())]
            self.create_input_topic(event["topic"]).pipe_input(event["key"], event["value"], event["ts"], headers)
        return [
            [
                *(record.topic, _hex(record.key), _hex(record.value), record.timestamp),
                [[name, _hex(value)] for name, value in record.headers],
            ]
            for topic in topics
            for record in self._outputs.pop(topic, ())
        ]


def _measure(records: Json) -> int:
    """Return the size of the keys and values of records, in bytes."""
    return sum(len(data) // 2 for _, key, value, *_ in records for data in (key, value) if data is not None)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def contents(store: Any) -> list[str]:
    """Return the entries of a store that both runners can list."""
    if isinstance(store, stores.SessionStore):
        entries = store.find_sessions_of_keys(None, None, 0, (1 << 63) - 1)
    elif isinstance(store, stores.TimestampedKeyValueStore | stores.TimestampedWindowStore):
        entries = store.all()
    else:
        return []
    return sorted(f"{functions.show(key)}={_show_value(value)}" for key, value in entries)


def _show_value(value: Any) -> str:
    if isinstance(value, stores.ValueAndTimestamp):
        return f"{value.value}@{value.timestamp}"
    return str(value)
