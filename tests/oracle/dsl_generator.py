"""Random pipelines of the DSL, with records, for ``DslRunner`` and ``dsl_programs``."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

Json = Any

_KEYS = ("a", "b", "cc", "dd", "", None)
_HEADERS: tuple[Json, ...] = ([], [], [], [["h", "1"]], [["h", ""], ["h", None], ["\u00e4", "2"]])
_VALUES = ("a", "ab", "b d", "xyz", "e", "ad", "", None, "hello", "zaz")
_PREDICATES, _MAPPERS = ("odd", "a"), ("x", "key", "thirds")


@dataclass(frozen=True)
class _Output:
    """A stream, table or group of the pipeline: its name, and the kinds of its keys and values."""

    name: str
    key: str = "S"
    value: str = "S"


class PipelineGenerator:
    """Generates one pipeline.

    Args:
        rng: source of randomness.
        cache_bytes: bytes of record caches; 0 for none.
    """

    def __init__(self, rng: random.Random, cache_bytes: int) -> None:
        self._rng, self._cache_bytes = rng, cache_bytes
        self._steps: list[Json] = []
        self._streams: list[_Output] = []
        self._tables: list[_Output] = []
        self._groups: list[_Output] = []
        self._globals: list[str] = []
        self._versioned: list[str] = []
        self._topics: list[str] = []
        self._outputs: list[str] = []
        self._stores: list[str] = []
        self._names = self._now = 0

    def generate(self, events: int) -> Json:
        """Return a request."""
        rng = self._rng
        self._read_stream()
        for add in rng.choices((self._read_stream, self._read_table, self._read_global), k=rng.randint(0, 3)):
            add()
        for _ in range(rng.randint(2, 9)):
            self._add_step()
        for stream in self._streams[-3:]:
            self._write(stream)
        for table in self._tables[-2:]:
            self._write(self._to_stream(table))
        return {
            "steps": self._steps,
            "optimize": rng.random() < 0.3,
            "cache": self._cache_bytes,
            "events": [self._event() for _ in range(events)],
            "outputs": self._outputs,
            "stores": self._stores,
        }

    def _event(self) -> Json:
        rng = self._rng
        if rng.random() < 0.05:
            return {"advance": rng.choice((1, 500, 2_000))}
        self._now = max(
            0, self._now + rng.choice((0, rng.randint(0, 100))) + rng.choice((0, 0, 200)) - rng.choice((0, 0, 60, 300))
        )
        if rng.random() < 0.05:
            self._now += rng.choice((1_000, 100_000, 10_000_000))
        return {
            "topic": rng.choice(self._topics),
            "key": rng.choice(_KEYS),
            "value": rng.choice(_VALUES),
            "ts": self._now,
            "headers": rng.choice(_HEADERS),
        }

    # ---- sources ----

    def _topic(self) -> str:
        self._topics.append(f"in{len(self._topics)}")
        return self._topics[-1]

    def _read_stream(self) -> None:
        if self._topics and self._rng.random() < 0.2 and self._streams:
            topics = next(step["topics"] for step in self._steps if step["op"] == "stream")
        else:
            topics = [self._topic() for _ in range(self._rng.choice((1, 1, 2)))]
        self._streams.append(self._add("stream", topics=topics))

    def _read_table(self) -> None:
        store = self._store(0.4)
        if self._rng.random() < 0.3:
            store = {"name": self._store_name(), "history": 500}
        self._tables.append(self._add("table", topic=self._topic(), store=store))
        if store is not None and "history" in store:
            self._versioned.append(self._tables[-1].name)

    def _read_global(self) -> None:
        self._globals.append(self._add("global_table", topic=self._topic(), store=self._store(0.4)).name)

    # ---- steps ----

    def _add_step(self) -> None:
        rng = self._rng
        steps = [self._stateless, self._stateless, self._rekey, self._split, self._merge, self._group]
        steps += [self._repartition, self._to_table, self._join_streams, self._cogroup, self._process]
        if self._tables:
            steps += [self._table_step, self._table_step, self._regroup, self._to_streams, self._join_table]
            steps += [self._join_tables, self._suppress]
        if self._globals:
            steps += [self._join_global]
        rng.choice(steps)()

    def _stateless(self) -> None:
        rng, stream = self._rng, self._pick(self._streams)
        kind = rng.choice(("filter", "filter_not", "map_values", "flat_map_values", "peek"))
        if kind in ("filter", "filter_not"):
            self._streams.append(self._add(kind, stream, f=rng.choice(_PREDICATES)))
        elif kind == "peek":
            self._streams.append(self._add(kind, stream))
        elif kind == "map_values":
            self._streams.append(self._add(kind, stream, f=rng.choice(_MAPPERS), value_kind="S"))
        else:
            self._streams.append(self._add(kind, stream, value_kind="S"))

    def _process(self) -> None:
        kind, stream = self._rng.choice(("process", "process_values")), self._pick(self._streams)
        self._streams.append(self._add(kind, stream, value_kind="S"))

    def _rekey(self) -> None:
        rng, stream = self._rng, self._pick(self._streams)
        kind = rng.choice(("map", "select_key", "flat_map"))
        if kind == "map":
            self._streams.append(self._add(kind, stream, f=rng.choice(("swap", "first")), value_kind="S", key_kind="S"))
        elif kind == "select_key":
            f = rng.choice(("first", "text", "const"))
            self._streams.append(self._add(kind, stream, f=f, key_kind="S"))
        else:
            self._streams.append(self._add(kind, stream, key_kind="S"))

    def _split(self) -> None:
        rng, stream = self._rng, self._pick(self._streams)
        branches = [
            {"f": rng.choice(_PREDICATES), **({"name": f"b{number}"} if rng.random() < 0.3 else {})}
            for number in range(rng.randint(1, 2))
        ]
        prefix, has_default = f"v{self._next()}_", rng.random() < 0.5
        step = {"op": "split", "in": stream.name, "branches": branches, "outs": prefix, "default": has_default}
        self._steps.append({**step, **self._name(0.3)})
        for number in range(len(branches) + has_default):
            self._streams.append(_Output(f"{prefix}{number}", stream.key, stream.value))

    def _merge(self) -> None:
        stream = self._pick(self._streams)
        others = [one for one in self._streams if (one.key, one.value) == (stream.key, stream.value) and one != stream]
        if others:
            self._streams.append(self._add("merge", stream, other=self._rng.choice(others).name))

    def _group(self) -> None:
        rng, stream = self._rng, self._pick(self._streams)
        serdes = {"key": stream.key, "value": stream.value}
        if rng.random() < 0.5:
            f = rng.choice(("first", "text", "const"))
            group = self._add("group_by", stream, f=f, key="S", value=stream.value, key_kind="S")
        else:
            group = self._add("group_by_key", stream, **serdes)
        self._groups.append(group)
        for _ in range(rng.choice((1, 1, 2))):
            if rng.random() < 0.5:
                self._aggregate(group, "stream")
            else:
                self._aggregate_windows(group)

    def _aggregate_windows(self, group: _Output) -> None:
        rng = self._rng
        if group.key != "S":
            return
        windows, on_close = self._windows(), rng.random() < 0.3
        kind = rng.choice(("count", "reduce", "aggregate"))
        if kind == "reduce" and group.value != "S":
            kind = "count"
        store = self._store(0.4)
        if store is not None:
            store["key"] = "S"
            if rng.random() < 0.2:
                store["retention"] = 1_000
        key_kind = "W" if windows["kind"] == "session" else f"T{windows['size']}"
        value_kind = {"count": "L", "reduce": group.value, "aggregate": "S"}[kind]
        arguments = {"windows": windows, "store": store, "on_close": on_close or None}
        table = self._add(f"windowed_{kind}", group, key_kind=key_kind, value_kind=value_kind, **arguments)
        self._tables.append(table)
        if rng.random() < 0.3:
            self._tables.append(self._add("suppress", table))

    def _windows(self) -> Json:
        rng, grace = self._rng, self._rng.choice((0, 0, 50, 200))
        kind = rng.choice(("tumbling", "hopping", "sliding", "session"))
        size = rng.choice((50, 100, 250))
        windows = {"kind": kind, "size": size, "grace": grace}
        if kind in ("tumbling", "hopping"):
            windows["advance"] = size if kind == "tumbling" else rng.choice((20, 50))
        return windows

    def _cogroup(self) -> None:
        rng = self._rng
        groups = [group for group in self._groups if group.key == "S"]
        if not groups:
            return
        one = rng.choice(groups)
        others = [group for group in groups if group != one]
        arguments: Json = {"store": {**(self._store(0.5) or {}), "key": "S", "value": "S"}}
        if others and rng.random() < 0.7:
            arguments["other"] = rng.choice(others).name
        key_kind = "S"
        if rng.random() < 0.5:
            arguments["windows"] = windows = self._windows()
            key_kind = "W" if windows["kind"] == "session" else f"T{windows['size']}"
        self._tables.append(self._add("cogroup", one, key_kind=key_kind, value_kind="S", **arguments))

    def _suppress(self) -> None:
        rng, table = self._rng, self._pick(self._tables)
        limits: Json = rng.choice(({}, {"records": 2}, {"bytes": 150}))
        self._tables.append(self._add("suppress", table, wait=rng.choice((0, 100, 1_000)), **limits))

    def _join_streams(self) -> None:
        streams, rng = [one for one in self._streams if one.key == "S"], self._rng
        if not streams:
            return
        one, other = rng.choice(streams), rng.choice(streams)
        windows: Json = {
            "before": rng.choice((0, 50, 100)),
            "after": rng.choice((0, 50, 200)),
            "grace": rng.choice((0, 0, 100)),
        }
        arguments: Json = {"kind": rng.choice(("inner", "left", "outer")), "other": other.name, **windows}
        if rng.random() < 0.2:
            arguments["base"] = f"base{self._next()}"
        serdes: Json = {"key": "S", "value": one.value, "other_value": other.value}
        self._streams.append(self._add("join_streams", one, value_kind="S", **arguments, **serdes))

    def _aggregate(self, group: _Output, of: str) -> None:
        rng = self._rng
        kind = rng.choice(("count", "reduce", "aggregate"))
        if kind == "reduce" and group.value != "S":
            kind = "count"
        store = self._store(0.4)
        if store is not None:
            store["key"] = group.key if store.get("name") or group.key != "S" else None
        if store is None and kind == "aggregate":
            store = None
        value_kind = {"count": "L", "reduce": group.value, "aggregate": "S"}[kind]
        chance = 0.0 if store is None and kind != "count" else 0.3
        self._tables.append(self._add(kind, group, of=of, store=store, value_kind=value_kind, name_chance=chance))

    def _regroup(self) -> None:
        table = self._pick(self._tables)
        f = self._rng.choice(("swap", "first"))
        group = self._add("group_by", table, f=f, key="S", value="S", key_kind="S", value_kind="S")
        self._aggregate(group, "table")

    def _table_step(self) -> None:
        rng, table = self._rng, self._pick(self._tables)
        store = self._store(0.3)
        if store is not None:
            store["key"] = table.key
        if rng.random() < 0.5:
            if store is not None:
                store["value"] = table.value
            kind = rng.choice(("filter", "filter_not"))
            self._tables.append(self._add(kind, table, f=rng.choice(_PREDICATES), store=store))
        else:
            mapper = rng.choice(_MAPPERS)
            self._tables.append(self._add("map_values", table, f=mapper, store=store, value_kind="S"))

    def _repartition(self) -> None:
        stream = self._pick(self._streams)
        self._streams.append(self._add("repartition", stream, key=stream.key, value=stream.value))

    def _to_table(self) -> None:
        stream = self._pick(self._streams)
        store = {"key": stream.key, "value": stream.value}
        if self._rng.random() < 0.4:
            store["name"] = self._store_name()
        if self._rng.random() < 0.3:
            store["caching"] = False
        self._tables.append(self._add("to_table", stream, store=store))

    def _to_streams(self) -> None:
        self._streams.append(self._to_stream(self._pick(self._tables)))

    def _to_stream(self, table: _Output) -> _Output:
        if table.key != "S" and self._rng.random() < 0.7:
            return self._add("to_stream", table, f="text", key_kind="S")
        return self._add("to_stream", table)

    def _join_table(self) -> None:
        stream = self._pick([one for one in self._streams if one.key == "S"])
        table = self._pick([one for one in self._tables if one.key == "S"])
        if stream is None or table is None:
            return
        kind = self._rng.choice(("inner", "left"))
        arguments = {"key": "S", "value": stream.value, "other": table.name, "kind": kind}
        if table.name in self._versioned and self._rng.random() < 0.5:
            arguments["grace"] = self._rng.choice((0, 100, 500))
        self._streams.append(self._add("join_table", stream, value_kind="S", **arguments))

    def _join_global(self) -> None:
        stream, kind = self._pick(self._streams), self._rng.choice(("inner", "left"))
        other, f = self._rng.choice(self._globals), self._rng.choice(("first", "text"))
        self._streams.append(self._add("join_global", stream, other=other, kind=kind, f=f, value_kind="S"))

    def _join_tables(self) -> None:
        tables = [one for one in self._tables if one.key == "S"]
        if len(tables) < 2:
            return
        one, other = self._rng.sample(tables, 2)
        kind, store = self._rng.choice(("inner", "left", "outer")), self._store(0.3)
        self._tables.append(self._add("join_tables", one, other=other.name, kind=kind, store=store, value_kind="S"))

    def _write(self, stream: _Output) -> None:
        self._outputs.append(f"out{len(self._outputs)}")
        topic = self._outputs[-1]
        step = {"op": "to", "in": stream.name, "topic": topic, "key": stream.key, "value": stream.value}
        self._steps.append({**step, **self._name(0.2)})

    # ---- parts of steps ----

    def _add(
        self,
        op: str,
        source: _Output | None = None,
        /,
        *,
        key_kind: str | None = None,
        value_kind: str | None = None,
        name_chance: float = 0.2,
        **arguments: Any,
    ) -> _Output:
        name = f"v{self._next()}"
        step = {"op": op, "out": name, **arguments, **self._name(name_chance)}
        if source is not None:
            step["in"] = source.name
        self._steps.append({key: value for key, value in step.items() if value is not None})
        before = source or _Output("")
        return _Output(name, key_kind or before.key, value_kind or before.value)

    def _pick(self, outputs: list[_Output]) -> Any:
        return self._rng.choice(outputs) if outputs else None

    def _next(self) -> int:
        self._names += 1
        return self._names

    def _name(self, chance: float) -> Json:
        return {"name": f"n{self._next()}"} if self._rng.random() < chance else {}

    def _store_name(self) -> str:
        self._stores.append(f"store{len(self._stores)}")
        return self._stores[-1]

    def _store(self, chance: float) -> Json:
        """Return settings of a store, or None."""
        if self._rng.random() >= chance:
            return None
        store: Json = {}
        if self._rng.random() < 0.8:
            store["name"] = self._store_name()
        if self._rng.random() < 0.3:
            store["caching"] = False
        return store
