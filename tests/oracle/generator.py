"""Random topologies, invalid calls and scenarios, in the format of ``OracleRunner.java``."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

Json = Any

KINDS = ("key_value", "timestamped", "versioned", "window", "timestamped_window", "session")


class Invalid(NamedTuple):
    """A request that both sides refuse, and a regular expression for this project's message."""

    request: Json
    message: str


def topology(rng: random.Random) -> list[Json]:
    """Return the steps of a valid topology."""
    return _Steps(rng).steps


def scenario(rng: random.Random) -> Json:
    """Return a request with events."""
    return _Scenario(rng).request if rng.random() < 0.6 else _StoreScenario(rng).request


def invalid(rng: random.Random) -> Invalid:
    """Return a valid topology with an invalid call at the end."""
    made = _Steps(rng, is_complete=True)
    source, processor, sink = (made.named(kind) for kind in ("source", "processor", "sink"))
    topic, store = made.topics[0], made.stores[0]
    new = "new-node"

    def added(**step: Any) -> Json:
        return {"parents": [source], **step}

    other = {**store, "id": "other"}
    unlogged = {"id": "g2", "name": "g2", "kind": "key_value", "logging": False}
    glob = {"call": "global", "store": unlogged, "source": "g-src", "topic": "g-topic2", "processor": "g-proc"}
    cases: list[tuple[Json, str]] = [
        ({"call": "source", "name": rng.choice([source, processor, sink]), "topics": ["n"]}, "has already been added"),
        (added(call="processor", name=rng.choice([source, processor, sink])), "has already been added"),
        (added(call="sink", name=rng.choice([source, processor, sink]), topic="o"), "has already been added"),
        ({"call": "source", "name": new, "topics": []}, "at least one topic"),
        ({"call": "source", "name": new, "topics": [topic]}, "already read"),
        ({"call": "source", "name": new, "topics": ["n1", "n1"]}, "twice"),
        ({"call": "source", "name": new, "pattern": topic[:1] + ".*"}, "matches topic"),
        ({"call": "source", "name": new, "topics": ["pattern-0-x"]}, "matches the pattern"),
        ({"call": "source", "name": None, "topics": ["n"]}, "name of a node"),
        ({"call": "source", "name": new, "topics": [None]}, "name of a topic"),
        (added(call="processor", name=new, parents=[]), "at least one parent"),
        (added(call="sink", name=new, topic="o", parents=[]), "at least one parent"),
        (added(call="processor", name=new, parents=[source, new]), "its own parent"),
        (added(call="sink", name=new, topic="o", parents=[new]), "its own parent"),
        (added(call="processor", name=new, parents=["unknown"]), "has not been added yet"),
        (added(call="sink", name=new, topic="o", parents=[source, "unknown"]), "has not been added yet"),
        (added(call="sink", name=new, topic="o", parents=[sink]), "is a sink"),
        (added(call="processor", name=new, parents=[sink]), "is a sink"),
        (added(call="shared", name=new), "new object"),
        ({"call": "store", "store": other, "processors": []}, "another store"),
        ({"call": "store", "store": {**unlogged, "name": "g-store"}, "processors": []}, "another store"),
        ({"call": "store", "store": {**unlogged, "name": "n"}, "processors": ["unknown"]}, "has not been added yet"),
        ({"call": "store", "store": {**unlogged, "name": "n"}, "processors": [source]}, "source or a sink"),
        ({"call": "connect", "processor": processor, "stores": []}, "at least one store"),
        ({"call": "connect", "processor": processor, "stores": ["unknown"]}, "has not been added yet"),
        ({"call": "connect", "processor": "unknown", "stores": [store["name"]]}, "has not been added yet"),
        ({"call": "connect", "processor": source, "stores": [store["name"]]}, "source or a sink"),
        ({"call": "connect", "processor": sink, "stores": [store["name"]]}, "source or a sink"),
        ({"call": "connect", "processor": processor, "stores": ["g-store"]}, "is global"),
        ({**glob, "store": {**unlogged, "logging": True}}, "changelog"),
        ({**glob, "source": "g-proc"}, "different names"),
        ({**glob, "source": source}, "has already been added"),
        ({**glob, "processor": processor}, "has already been added"),
        ({**glob, "topic": topic}, "already read"),
        ({**glob, "topic": "g-topic"}, "already read"),
        ({**glob, "topic": "pattern-0-x"}, "matches the pattern"),
        ({**glob, "store": {**unlogged, "name": store["name"]}}, "has already been added"),
    ]
    step, message = rng.choice(cases)
    return Invalid({"steps": [*made.steps, step]}, message)


class _Steps:
    """A valid topology. A complete one has a source, pattern, processor, sink, store and global store."""

    def __init__(self, rng: random.Random, is_complete: bool = False) -> None:
        self._rng = rng
        self.steps: list[Json] = []
        self.topics: list[str] = []
        self.stores: list[Json] = []
        self._nodes: list[str] = []
        self._names: dict[str, list[str]] = {}
        self._patterns = 0
        self._source(is_pattern=False)
        if is_complete:
            self._source(is_pattern=True)
            self._processor()
            self._sink()
            self._store()
            self._global("g")
        for _ in range(rng.randrange(14)):
            self._any()

    def named(self, kind: str) -> str:
        """Return the name of any node of a kind."""
        return self._rng.choice(self._names[kind])

    def _any(self) -> None:
        rng = self._rng
        choice = rng.random()
        if choice < 0.2:
            self._source(is_pattern=rng.random() < 0.2)
        elif choice < 0.6:
            self._processor()
        elif choice < 0.75:
            self._sink()
        elif choice < 0.9:
            self._store()
        elif choice < 0.95 and self.stores and "processor" in self._names:
            stores = rng.sample(self.stores, rng.randint(1, min(2, len(self.stores))))
            step = {"call": "connect", "processor": self.named("processor"), "stores": [s["name"] for s in stores]}
            self.steps.append(step)
        else:
            self._global(f"g{len(self.steps)}")

    def _name(self, kind: str) -> str:
        rng = self._rng
        letters = "".join(rng.choice("abcdefghijklmnopqrstuvwxyzABCXYZ-_.0189") for _ in range(rng.randint(1, 9)))
        name = f"{letters}{len(self.steps)}"
        self._names.setdefault(kind, []).append(name)
        return name

    def _source(self, is_pattern: bool) -> None:
        name = self._name("source")
        step: Json = {"call": "source", "name": name, "reset": self._rng.choice([None, "earliest", "latest"])}
        if is_pattern:
            step["pattern"] = f"pattern-{self._patterns}-.*"
            self._patterns += 1
        else:
            step["topics"] = [
                f"{self._rng.choice('tuvw')}-{len(self.steps)}-{i}" for i in range(self._rng.randint(1, 3))
            ]
            self.topics += step["topics"]
        self.steps.append(step)
        self._nodes.append(name)

    def _parents(self) -> list[str]:
        rng = self._rng
        parents = rng.sample(self._nodes, rng.randint(1, min(3, len(self._nodes))))
        return parents * 2 if rng.random() < 0.03 else parents

    def _processor(self) -> None:
        parents, name = self._parents(), self._name("processor")
        self.steps.append({"call": "processor", "name": name, "parents": parents})
        self._nodes.append(name)

    def _sink(self) -> None:
        parents, name = self._parents(), self._name("sink")
        topic = None if self._rng.random() < 0.2 else self._rng.choice([*self.topics, "out", "out2"])
        self.steps.append({"call": "sink", "name": name, "parents": parents, "topic": topic})

    def _store(self) -> None:
        rng = self._rng
        if self.stores and rng.random() < 0.15:
            store = rng.choice(self.stores)
        else:
            name = f"{rng.choice(['store', 'S', 'counts', 'x.y'])}-{len(self.steps)}"
            store = {"id": name, "name": name, "kind": "key_value"}
            self.stores.append(store)
        processors = self._names.get("processor", [])
        users = rng.sample(processors, rng.randint(0, min(3, len(processors))))
        self.steps.append({"call": "store", "store": store, "processors": users})

    def _global(self, prefix: str) -> None:
        store = {"id": f"{prefix}-store", "name": f"{prefix}-store", "kind": "key_value", "logging": False}
        nodes = {"source": f"{prefix}-source", "topic": f"{prefix}-topic", "processor": f"{prefix}-processor"}
        self.steps.append({"call": "global", "store": store, **nodes})


class _Scenario:
    """Sources, processors with random programs, sinks, stores, and inputs."""

    IS_PERSISTENT = False

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._scale = rng.choice([10, 1_000, 40_000])
        self._stores = [self._new_store(number) for number in range(rng.randint(0, 3))]
        self._has_global = rng.random() < 0.25
        self._has_chain = rng.random() < 0.4
        self._schedules = 0
        self.request: Json = {"steps": self._steps(), "events": [], "outputs": ["out", "out2", "mid"]}
        self.request["config"] = {
            "idle": rng.choice([0, 0, 0, 50, -1]),
            **{
                phase: rng.choice(["fail", "continue", "continue"])
                for phase in ("deserialization", "processing", "production")
            },
        }
        self._add_events()
        self._reopen()

    def _reopen(self) -> None:
        """Let half of the scenarios continue with another task after every n-th event, with all stores in a file."""
        rng = self._rng
        if rng.random() < 0.5:
            every = rng.choice([1, 2, 3, 5, 8])
            self.request["reopen"] = list(range(every, len(self.request["events"]), every))
            for store in self._stores:
                store["persistent"] = True

    def _new_store(self, number: int) -> Json:
        rng = self._rng
        retention = rng.choice([self._scale * 5, 60_000, 150_000])
        store: Json = {"id": f"s{number}", "name": f"s{number}", "kind": rng.choice(KINDS), "retention": retention}
        store["persistent"] = self.IS_PERSISTENT or rng.random() < 0.5  # for this package only; the JVM uses RocksDB
        if store["kind"] in ("key_value", "timestamped"):
            store["caching"] = rng.random() < 0.3
        if "window" in store["kind"]:
            store |= {"size": min(self._scale, retention), "duplicates": rng.random() < 0.25}
        return store

    def _steps(self) -> list[Json]:
        rng = self._rng
        self._topics = [f"in{number}" for number in range(rng.randint(1, 4))]
        steps: list[Json] = [{"call": "source", "name": f"src-{topic}", "topics": [topic]} for topic in self._topics]
        parents = [step["name"] for step in steps]
        if self._has_global:
            store = {"id": "g", "name": "g", "kind": "key_value", "logging": False}
            update = {"process": [["store", "g", "put", "$k", "$v"]]}
            nodes = {"source": "g-src", "topic": "g-topic", "processor": "g-proc"}
            steps.append({"call": "global", "store": store, "program": update, **nodes})
            self._topics.append("g-topic")
        levels = rng.randint(1, 3)
        for level in range(levels):
            names = [f"p{level}-{number}" for number in range(rng.randint(1, 2))]
            children = [f"p{level + 1}-0"] if level + 1 < levels else ["sink", "sink2"]
            for name in names:
                program = self._program(children, rng.random() < 0.35)
                chosen = (
                    parents if level == 0 and rng.random() < 0.6 else rng.sample(parents, rng.randint(1, len(parents)))
                )
                steps.append({"call": "processor", "name": name, "parents": chosen, "program": program})
            parents = names
        processors = [step["name"] for step in steps if step["call"] == "processor"]
        steps += [{"call": "store", "store": store, "processors": processors} for store in self._stores]
        steps.append({"call": "sink", "name": "sink", "topic": "out", "parents": parents})
        steps.append(
            {"call": "sink", "name": "sink2", "topic": "mid" if self._has_chain else "out2", "parents": parents}
        )
        if self._has_chain:
            steps.append({"call": "source", "name": "src-mid", "topics": ["mid"]})
            steps.append(
                {
                    "call": "processor",
                    "name": "last",
                    "parents": ["src-mid"],
                    "program": {"process": [["forward", None, "~"]]},
                }
            )
            steps.append({"call": "sink", "name": "sink3", "topic": "out", "parents": ["last"]})
        return steps

    def _program(self, children: list[str], has_schedules: bool) -> Json:
        rng = self._rng
        body = self._body(children, rng.randint(1, 5))
        init = [self._schedule(children) for _ in range(rng.randint(1, 3))] if has_schedules else []
        return {"init": init, "process": [*body, ["emit", None]]}

    def _body(self, children: list[str], length: int) -> list[Json]:
        return [self._operation(children) for _ in range(length)]

    def _operation(self, children: list[str]) -> Json:
        rng = self._rng
        child = rng.choice([None, None, None, *children, "unknown"] if rng.random() < 0.1 else [None, children[0]])
        simple: list[Json] = [
            ["forward", child, rng.choice(["", "+", "!out"] if rng.random() < 0.1 else ["", "+"])],
            ["same", child],
            # With a chain, a later timestamp would advance the stream time, and call the schedules that have sent it.
            ["shift", child, 0 if self._has_chain else rng.choice([1, self._scale])],
            ["header", rng.choice("hi"), rng.choice("xy")],
            ["when", rng.choice(["a", "b", "!x"]), [rng.choice([["fail"], ["commit"], ["same", None]])]],
            ["cancel", f"t{rng.randrange(3)}"],
            ["catch", [["same", None]]],
            ["commit"],
            ["meta"],
            ["times"],
        ]
        choice = rng.random()
        if choice < 0.5 and self._stores:
            return self._store_call()
        if choice < 0.55 and self._has_global:
            return ["store", "g", rng.choice(["get", "get", "put"]), "$k", "$v"]
        if choice < 0.6 and self._schedules < 6:
            return ["when", "s", [self._schedule(children)]]
        return rng.choice(simple)

    def _schedule(self, children: list[str]) -> Json:
        rng = self._rng
        name = f"t{self._schedules % 3}"
        self._schedules += 1
        kind = rng.choice(["STREAM_TIME", "STREAM_TIME", "WALL_CLOCK_TIME"])
        interval = rng.choice([1, self._scale // 3, self._scale, self._scale * 4])
        body: list[Json] = [["meta"], ["times"]]
        if self._stores and rng.random() < 0.6:
            body.append(self._store_call())
        if rng.random() < 0.2:
            body.append(["cancel", f"t{rng.randrange(3)}"])
        if rng.random() < 0.1:
            body.append(["when", "5", [["fail"]]])
        return ["schedule", kind, interval, name, [*body, ["emit", None]]]

    def _store_call(self) -> Json:
        rng = self._rng
        store = rng.choice(self._stores)
        key = rng.choice(["$k", "$k", "$k", "a", "ab", "b"])
        low, high = rng.choice([("a", "b"), ("a", "az"), (None, "b"), ("aa", None), ("b", "a"), (None, None)])
        value = rng.choice(["$v", "$v", "$v", "w", None])
        back, ahead = [-rng.choice([0, 1, 2, 5, 9]) * self._scale], [rng.choice([0, 1]) * self._scale]
        calls: list[Json]
        match store["kind"]:
            case "versioned":
                put = ["put", key, value, rng.choice([back, [0]])]
                calls = [put, put, put, ["get", key], ["as_of", key, back], ["as_of", key, back], ["delete", key, back]]
            case "window" | "timestamped_window":
                put = ["put", key, value, rng.choice([back, [0], [0]])]
                calls = [put] * 5 + [
                    ["fetch", key, rng.choice([back, [0]])],
                    [rng.choice(["times", "reverse_times"]), key, back, ahead],
                    [rng.choice(["keys", "reverse_keys"]), low, high, back, ahead],
                    ["fetch_all", back, ahead],
                    [rng.choice(["all", "reverse_all"])],
                ]
            case "session":
                put = ["put", key, back, [0], value]
                calls = [put] * 4 + [
                    ["remove", key, back, [0]],
                    ["fetch_session", key, back, [0]],
                    ["find", key, back, ahead],
                    ["find_keys", low, high, back, ahead],
                    ["fetch", key],
                ]
            case _:
                calls = [["put", key, value]] * 4 + [
                    ["get", key],
                    ["put_if_absent", key, value],
                    ["delete", key],
                    ["range", low, high],
                    ["all"],
                    ["prefix", rng.choice(["a", "b", "ab"])],
                ]
                if not store["caching"]:  # caches of the JVM return deleted keys when they are read backward
                    calls += [["reverse_range", low, high], ["reverse_all"], ["delete_all"]]
        return ["store", store["name"], *rng.choice(calls)]

    def _add_events(self) -> None:
        """Add inputs with random times, keys and values."""
        rng = self._rng
        now = rng.choice([0, 5, self._scale * 3])
        faults = ["!bad", "!neg", "!prev", "!x", "!out"]
        for _ in range(rng.randint(3, 25)):
            if rng.random() < 0.15:
                self.request["events"].append({"advance": rng.choice([0, 1, 30, self._scale, self._scale * 7])})
                continue
            now = max(0, now + rng.choice([0, 0, 1, self._scale // 2, self._scale, self._scale * 6, -self._scale * 3]))
            value = rng.choice(["a", "b", "s", "c"]) + (rng.choice(faults) if rng.random() < 0.08 else "")
            topic = rng.choice(self._topics)
            if topic == "g-topic" and value is not None:  # the JVM's driver always continues after "!bad" there
                value = value.replace("!bad", "")
            event: Json = {
                "topic": topic,
                "key": None if rng.random() < 0.04 else rng.choice(["a", "ab", "b", "aa"]),
                "value": None if rng.random() < 0.04 else value,
                "ts": now,
            }
            if rng.random() < 0.2:
                event["headers"] = [["h", "1"]]
            self.request["events"].append(event)


class _StoreScenario(_Scenario):
    """One store, and inputs that each select one of many calls."""

    CALLS = 16
    IS_PERSISTENT = True

    def _steps(self) -> list[Json]:
        self._stores = [self._new_store(0)]
        calls = [["when", f"#{i};", [self._store_call(), ["emit", None]]] for i in range(self.CALLS)]
        return [
            {"call": "source", "name": "src", "topics": ["in"]},
            {"call": "processor", "name": "p", "parents": ["src"], "program": {"process": calls}},
            {"call": "store", "store": self._stores[0], "processors": ["p"]},
            {"call": "sink", "name": "sink", "topic": "out", "parents": ["p"]},
        ]

    def _add_events(self) -> None:
        rng = self._rng
        now = self._scale * 5
        for _ in range(rng.randint(20, 60)):
            now = max(0, now + rng.choice([0, 0, 0, 1, -1, self._scale, -self._scale, self._scale * 3]))
            value = f"#{rng.randrange(self.CALLS)};{rng.choice('xyz')}"
            key = rng.choice(["a", "a", "ab", "b"])
            self.request["events"].append({"topic": "in", "key": key, "value": value, "ts": now})
