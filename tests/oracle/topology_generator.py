"""Random topologies and invalid calls, in the format of ``OracleRunner.java``."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

Json = Any


class Invalid(NamedTuple):
    """A request that both sides reject, and a regular expression for this project's message."""

    request: Json
    message: str


def topology(rng: random.Random) -> list[Json]:
    """Return the steps of a valid topology."""
    return _Steps(rng).steps


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
        ({"call": "source", "name": rng.choice([source, processor, sink]), "topics": ["n"]}, "already exists"),
        (added(call="processor", name=rng.choice([source, processor, sink])), "already exists"),
        (added(call="sink", name=rng.choice([source, processor, sink]), topic="o"), "already exists"),
        ({"call": "source", "name": new, "topics": []}, "at least one topic"),
        ({"call": "source", "name": new, "topics": [topic]}, "already read"),
        ({"call": "source", "name": new, "topics": ["n1", "n1"]}, "twice"),
        ({"call": "source", "name": new, "pattern": topic[:1] + ".*"}, "matches topic"),
        ({"call": "source", "name": new, "topics": ["pattern-0-x"]}, "matches pattern"),
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
        ({"call": "store", "store": other, "processors": []}, "already exists"),
        ({"call": "store", "store": {**unlogged, "name": "g-store"}, "processors": []}, "already exists"),
        ({"call": "store", "store": {**unlogged, "name": "n"}, "processors": ["unknown"]}, "has not been added yet"),
        (
            {"call": "store", "store": {**unlogged, "name": "n"}, "processors": [source]},
            "cannot be connected to (source|sink)",
        ),
        ({"call": "connect", "processor": processor, "stores": []}, "at least one store"),
        ({"call": "connect", "processor": processor, "stores": ["unknown"]}, "has not been added yet"),
        ({"call": "connect", "processor": "unknown", "stores": [store["name"]]}, "has not been added yet"),
        ({"call": "connect", "processor": source, "stores": [store["name"]]}, "cannot be connected to (source|sink)"),
        ({"call": "connect", "processor": sink, "stores": [store["name"]]}, "cannot be connected to (source|sink)"),
        ({"call": "connect", "processor": processor, "stores": ["g-store"]}, "is global"),
        ({**glob, "store": {**unlogged, "logging": True}}, "logging must be False"),
        ({**glob, "source": "g-proc"}, "different names"),
        ({**glob, "source": source}, "already exists"),
        ({**glob, "processor": processor}, "already exists"),
        ({**glob, "topic": topic}, "already read"),
        ({**glob, "topic": "g-topic"}, "already read"),
        ({**glob, "topic": "pattern-0-x"}, "matches pattern"),
        ({**glob, "store": {**unlogged, "name": store["name"]}}, "already exists"),
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
