"""Random scenarios, in the format of ``OracleRunner.java``."""

from __future__ import annotations

import random
from typing import Any

from .store_call_generator import random_call, random_call_of_reader

Json = Any

KINDS = ("key_value", "timestamped", "versioned", "window", "timestamped_window", "session")

#: Topics of the sinks, some of which are selected by the key.
OUTPUTS = ["out", "out2", "mid", *(f"out-{key}" for key in ("", "a", "aa", "ab", "b", "tick", "null"))]

#: A time after all records.
LAST_MS = 1 << 40


def scenario(rng: random.Random) -> Json:
    """Return a request with events."""
    return _Scenario(rng).request if rng.random() < 0.6 else _StoreScenario(rng).request


def waiting_scenario(rng: random.Random) -> Json:
    """Return a request whose task waits for records of many partitions."""
    return _WaitingScenario(rng).request


class _Scenario:
    """Sources, processors with random programs, sinks, stores, and inputs."""

    IS_PERSISTENT = False
    IDLE_MS: tuple[int, ...] = (0, 0, 0, 50, -1)

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._scale = rng.choice([10, 1_000, 40_000])
        self._stores = [self._new_store(f"s{number}") for number in range(rng.randint(0, 3))]
        self._global_store: Json = {**self._new_store("g"), "logging": False, "caching": False}
        self._has_global = rng.random() < 0.3
        self._has_chain = rng.random() < 0.4
        self._schedules = 0
        self.request: Json = {"steps": self._steps(), "events": [], "outputs": OUTPUTS}
        self.request["config"] = {
            "idle": rng.choice(self.IDLE_MS),
            **{
                phase: rng.choice(["fail", "continue", "continue"])
                for phase in ("deserialization", "processing", "production")
            },
        }
        self._add_events()
        self._add_probes()
        self._reopen()

    def _add_probes(self) -> None:
        """Add the keys and times at which versioned stores are read at the end."""
        rng = self._rng
        written = [event["ts"] for event in self.request["events"] if "ts" in event]
        steps = [-10, -9, -5, -2, -1, 0, 1]
        near = {max(0, time + rng.choice(steps) * self._scale + rng.choice([-1, 0, 1])) for time in written * 2}
        times = sorted({0, LAST_MS, *written, *near})
        self.request["probes"] = {"keys": ["a", "aa", "ab", "b", "tick"], "times": times}

    def _reopen(self) -> None:
        """Let half of the scenarios continue with another task after every n-th event, with all stores in a file."""
        rng = self._rng
        if rng.random() < 0.5:
            every = rng.choice([1, 2, 3, 5, 8])
            self.request["reopen"] = list(range(every, len(self.request["events"]), every))
            for store in self._stores:
                store["persistent"] = True
            self._global_store["persistent"] = True

    def _new_store(self, name: str) -> Json:
        rng = self._rng
        retention = rng.choice([self._scale * 5, 60_000, 150_000])
        store: Json = {"id": name, "name": name, "kind": rng.choice(KINDS), "retention": retention}
        store["persistent"] = self.IS_PERSISTENT or rng.random() < 0.5  # for this package only; the JVM uses RocksDB
        if store["kind"] in ("key_value", "timestamped"):
            store["caching"] = rng.random() < 0.3
        if "window" in store["kind"]:
            store |= {"size": min(self._scale, retention), "duplicates": rng.random() < 0.25}
        return store

    def _steps(self) -> list[Json]:
        sources = self._sources()
        global_store = self._global_store_steps() if self._has_global else []
        processors, last = self._processors([step["name"] for step in sources])
        names = [step["name"] for step in processors]
        stores: list[Json] = [{"call": "store", "store": store, "processors": names} for store in self._stores]
        return [*sources, *global_store, *processors, *stores, *self._sinks(last)]

    def _sources(self) -> list[Json]:
        """Return sources of one topic, or of several topics of a pattern."""
        rng = self._rng
        self._topics: list[str] = []
        steps: list[Json] = []
        for number in range(rng.randint(1, 4)):
            if rng.random() < 0.25:
                topics = [f"pattern{number}-{end}" for end in rng.sample(["a", "b", "ab", "ba1"], rng.randint(1, 3))]
                pattern = rng.choice([f"pattern{number}-[ab]+1?", f"pattern{number}.*"])
                steps.append({"call": "source", "name": f"src-in{number}", "pattern": pattern})
            else:
                topics = [f"in{number}"]
                steps.append({"call": "source", "name": f"src-in{number}", "topics": topics})
            self._topics += topics
        return steps

    def _global_store_steps(self) -> list[Json]:
        rng = self._rng
        calls = [random_call(rng, self._global_store, self._scale) for _ in range(3)]
        update = {"process": [["when", str(number), [call]] for number, call in enumerate(calls)]}
        nodes = {"source": "g-src", "topic": "g-topic", "processor": "g-proc"}
        self._topics.append("g-topic")
        return [{"call": "global", "store": self._global_store, "program": update, **nodes}]

    def _processors(self, parents: list[str]) -> tuple[list[Json], list[str]]:
        """Return levels of processors, and the names of those of the last level."""
        rng = self._rng
        steps: list[Json] = []
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
        return steps, parents

    def _sinks(self, parents: list[str]) -> list[Json]:
        """Return two sinks; with a chain, one of them writes to a topic that another source reads."""
        rng = self._rng
        topics = {"sink": rng.choice(["out", "out", None]), "sink2": "mid" if self._has_chain else "out2"}
        steps: list[Json] = [
            {"call": "sink", "name": name, "topic": topic, "parents": parents, "partitioned": rng.random() < 0.3}
            for name, topic in topics.items()
        ]
        if self._has_chain:
            again = {"process": [["forward", None, "~"]]}
            steps += [
                {
                    "call": "source",
                    "name": "src-mid",
                    **self._rng.choice([{"topics": ["mid"]}, {"pattern": "mi[a-f]"}]),
                },
                {"call": "processor", "name": "last", "parents": ["src-mid"], "program": again},
                {"call": "sink", "name": "sink3", "topic": "out", "parents": ["last"]},
            ]
        return steps

    def _program(self, children: list[str], has_schedules: bool) -> Json:
        rng = self._rng
        body = self._body(children, rng.randint(1, 5))
        init = [self._schedule(children) for _ in range(rng.randint(1, 3))] if has_schedules else []
        if rng.random() < 0.01:
            init.append(self._failure())
        return {"init": init, "process": [*body, ["emit", None]]}

    def _body(self, children: list[str], length: int) -> list[Json]:
        return [self._operation(children) for _ in range(length)]

    def _operation(self, children: list[str]) -> Json:
        rng = self._rng
        child = rng.choice([None, None, None, *children, "unknown"] if rng.random() < 0.1 else [None, children[0]])
        simple: list[Json] = [
            ["forward", child, rng.choice(["", "+", "!out", "!part"] if rng.random() < 0.1 else ["", "+"])],
            ["same", child],
            # With a chain, a later timestamp would advance the stream time, and call the schedules that have sent it.
            ["shift", child, 0 if self._has_chain else rng.choice([1, self._scale])],
            ["header", rng.choice("hi"), rng.choice("xy")],
            ["when", rng.choice(["a", "b", "!x"]), [rng.choice([self._failure(), ["commit"], ["same", None]])]],
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
            return random_call_of_reader(rng, self._global_store, self._scale)
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
            body.append(["when", "5", [self._failure()]])
        return ["schedule", kind, interval, name, [*body, ["emit", None]]]

    def _failure(self) -> Json:
        return ["fail", self._rng.choice(["argument", "unsupported", "state"])]

    def _store_call(self) -> Json:
        return random_call(self._rng, self._rng.choice(self._stores), self._scale)

    def _add_events(self) -> None:
        """Add inputs with random times, keys and values."""
        rng = self._rng
        now = rng.choice([0, 5, self._scale * 3])
        faults = ["!bad", "!neg", "!prev", "!x", "!out", "!part"]
        for _ in range(rng.randint(3, 25)):
            if rng.random() < 0.15:
                self.request["events"].append({"advance": rng.choice([0, 1, 30, self._scale, self._scale * 7])})
                continue
            now = max(0, now + rng.choice([0, 0, 1, self._scale // 2, self._scale, self._scale * 6, -self._scale * 3]))
            value = rng.choice(["a", "b", "s", "c"]) + (rng.choice(faults) if rng.random() < 0.08 else "")
            topic = rng.choice(self._topics)
            if topic == "g-topic":  # the JVM's driver always continues after "!bad" there
                value = value.replace("!bad", "") + str(rng.randrange(3))
            event: Json = {
                "topic": topic,
                "key": rng.choice([None, ""]) if rng.random() < 0.08 else rng.choice(["a", "ab", "b", "aa"]),
                "value": rng.choice([None, ""]) if rng.random() < 0.08 else value,
                "ts": now,
            }
            if rng.random() < 0.2:
                event["headers"] = rng.choice([[["h", "1"]], [["h", ""], ["h", "2"], ["\u00e4", "\u20ac"]]])
            self.request["events"].append(event)


class _StoreScenario(_Scenario):
    """One store, and inputs that each select one of many calls."""

    CALLS = 16
    IS_PERSISTENT = True

    def _steps(self) -> list[Json]:
        self._stores = [self._new_store("s0")]
        calls = [["when", f"#{i};", [self._store_call(), ["emit", None]]] for i in range(self.CALLS)]
        return [
            {"call": "source", "name": "src", "topics": ["in"]},
            {"call": "processor", "name": "p", "parents": ["src"], "program": {"process": calls}},
            {"call": "store", "store": self._stores[0], "processors": ["p"]},
            {"call": "sink", "name": "sink", "topic": "out", "parents": ["p"]},
        ]

    def _add_events(self) -> None:
        rng = self._rng
        now = rng.choice([0, self._scale * 5])
        for _ in range(rng.randint(20, 60)):
            now = max(0, now + rng.choice([0, 0, 0, 1, -1, self._scale, -self._scale, self._scale * 3]))
            value = f"#{rng.randrange(self.CALLS)};{rng.choice('xyz')}"
            key = rng.choice([None, ""]) if rng.random() < 0.05 else rng.choice(["a", "a", "ab", "b"])
            self.request["events"].append({"topic": "in", "key": key, "value": value, "ts": now})


class _WaitingScenario(_Scenario):
    """Many topics, some of whose partitions share a bucket of a Java hash table, and short advances of the clock."""

    IDLE_MS = (0, 1, 30, 50)

    def _steps(self) -> list[Json]:
        rng = self._rng
        self._stores, self._has_global = [], False
        self._topics = [f"{name}-{rng.randrange(1000)}" for name in "abcdefghijklmnopqrstuvwxyz"[: rng.randint(2, 26)]]
        selected = [
            {"pattern": f"{topic}.*"} if rng.random() < 0.2 else {"topics": [topic]}
            for topic in rng.sample(self._topics, len(self._topics))
        ]
        sources = [{"call": "source", "name": f"src-{i}", **choice} for i, choice in enumerate(selected)]
        names = [step["name"] for step in sources]
        return [
            *sources,
            {"call": "processor", "name": "p", "parents": names, "program": {"process": [["meta"], ["emit", None]]}},
            {"call": "sink", "name": "sink", "topic": "out", "parents": ["p"]},
        ]

    def _add_events(self) -> None:
        rng = self._rng
        for _ in range(rng.randint(20, 60)):
            if rng.random() < 0.5:
                self.request["events"].append({"advance": rng.choice([1, 30, 50])})
            else:
                event = {"topic": rng.choice(self._topics), "key": "a", "value": "b", "ts": rng.randrange(1000)}
                self.request["events"].append(event)
