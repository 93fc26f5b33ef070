"""A processor that is data; ``OracleRunner.java`` runs the same with Kafka Streams."""

from __future__ import annotations

from functools import partial
from typing import Any

from zkconsumer.topology import Processor, ProcessorContext, PunctuationType, Record, Remembered

from .store_calls import call, show

Json = Any


FAILURES = {"argument": ValueError, "unsupported": NotImplementedError, "state": RuntimeError}


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
                case ["fail", kind]:
                    raise FAILURES[kind]("fail")
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
        return call(self._context.get_state_store(name), self._kinds[name], method, a, record.timestamp)


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
