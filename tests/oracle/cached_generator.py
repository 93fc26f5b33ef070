"""Random scenarios of cached stores, in the format of ``OracleRunner.java``."""

from __future__ import annotations

import random
from typing import Any

Json = Any

KINDS = ("key_value", "timestamped", "window", "timestamped_window", "session")

#: Bytes of caches: none, some entries, and all.
CACHE_BYTES = (0, 150, 400, 1_000, 2_500, 1 << 20)

RETENTION_MS, LAST_MS = 400_000, (1 << 62) - 1


def scenario(rng: random.Random) -> Json:
    """Return a request with events."""
    return _CachedScenario(rng).request


class _CachedScenario:
    """Two processors with cached stores. The second one receives the changes of the stores of the first one.

    A listener and the nodes that it calls do not use the store itself. Kafka Streams then counts some bytes twice.
    Stores with deleted keys are not scanned, because Kafka Streams returns some of the deleted keys. Windows and
    sessions are read and deleted only if none of them expires, because Kafka Streams returns expired ones from the
    cache, and the time of a deleted one has no effect if the store does not have it.
    """

    CALLS = 12

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._expires = rng.random() < 0.25
        self._stores = [self._new_store(number) for number in range(3)]
        self._topics = ["in", "other"][: rng.randint(1, 2)]
        self.request: Json = {
            "steps": self._steps(),
            "events": self._events(),
            "cache_bytes": rng.choice(CACHE_BYTES),
            "commit_every": rng.choice([1, 3, 10, 1_000]),
        }

    def _new_store(self, number: int) -> Json:
        rng = self._rng
        store: Json = {
            "id": f"s{number}",
            "name": rng.choice(["a", "b", "store", "x.y"]) + str(number),
            "kind": rng.choice(KINDS),
            "retention": 60_000 if self._expires else RETENTION_MS,
            "size": 1_000,
            "caching": rng.random() < 0.9,
            "listens": rng.random() < 0.8,
            "deletes": not self._expires and rng.random() < 0.5,
        }
        return store

    def _steps(self) -> list[Json]:
        rng = self._rng
        first, second, third = self._stores
        calls: list[Json] = [
            ["when", f"#{i};", [self._store_call(rng.choice([first, second])), ["emit", "p1"]]]
            for i in range(self.CALLS - 2)
        ]
        calls.append(["when", f"#{self.CALLS - 2};", [["shift", "p1", 7]]])
        calls.append(["when", f"#{self.CALLS - 1};", [["header", "n", "x"], self._store_call(first), ["same", "sink"]]])
        init = [
            ["listen", store["name"], rng.random() < 0.5, rng.choice(["p1", "p1", "sink", None])]
            for store in (first, second)
            if store["caching"] and store["listens"]
        ]
        if rng.random() < 0.3:
            body = [self._store_call(first, "tick"), ["emit", "p1"]]
            init.append(["schedule", "STREAM_TIME", rng.choice([1, 5_000]), "t0", body])
        later = [self._store_call(third, "$k") for _ in range(rng.randint(0, 2))]
        last = [["listen", third["name"], rng.random() < 0.5, "sink"]] if third["caching"] and third["listens"] else []
        p1 = [*later, ["meta"], ["same", None], ["emit", None]]
        return [
            *({"call": "source", "name": f"src-{topic}", "topics": [topic]} for topic in self._topics),
            {
                "call": "processor",
                "name": "p0",
                "parents": [f"src-{topic}" for topic in self._topics],
                "program": {"init": init, "process": calls},
            },
            {"call": "processor", "name": "p1", "parents": ["p0"], "program": {"init": last, "process": p1}},
            {"call": "store", "store": first, "processors": ["p0"]},
            {"call": "store", "store": second, "processors": ["p0"]},
            {"call": "store", "store": third, "processors": ["p1"]},
            {
                "call": "sink",
                "name": "sink",
                "topic": "out",
                "parents": ["p0", "p1"],
                "partitioned": rng.random() < 0.3,
            },
        ]

    def _store_call(self, store: Json, key: str | None = None) -> Json:
        rng = self._rng
        key = rng.choice(["$k", "$k", "$k", "a", "ab", "b"]) if key is None else key
        value = None if store["deletes"] and rng.random() < 0.3 else rng.choice(["$v", "$v", "w"])
        back = [-rng.choice([0, 0, 1, 5_000, 70_000])]
        calls: list[Json]
        match store["kind"]:
            case "window" | "timestamped_window":
                calls = [["put", key, value, back]] * 4
                if not self._expires:
                    calls.append(["fetch", key, back])
                    if not store["deletes"]:
                        calls += [["times", key, 0, LAST_MS], ["fetch_all", 0, LAST_MS], ["all"]]
            case "session":
                calls = [["put", key, back, [0], value]] * 4
                if store["deletes"]:
                    calls.append(["remove", key, back, [0]])
                if not self._expires:
                    calls.append(["fetch_session", key, back, [0]])
                    if not store["deletes"]:
                        calls += [["find", key, 0, LAST_MS], ["fetch", key]]
            case _:
                calls = [["put", key, value]] * 4 + [["get", key], ["put_if_absent", key, value]]
                calls += [["delete", key]] if store["deletes"] else [["range", "a", "b"], ["all"], ["prefix", "a"]]
        return ["store", store["name"], *rng.choice(calls)]

    def _events(self) -> list[Json]:
        rng = self._rng
        now, events = 0, []
        for _ in range(rng.randint(10, 80)):
            now = max(0, now + rng.choice([0, 1, -1, 1_000, -1_000, 30_000, 200_000 if self._expires else 90_000]))
            if not self._expires:
                now = min(now, RETENTION_MS - 10_000)
            event: Json = {
                "topic": rng.choice(self._topics),
                "key": rng.choice(["a", "a", "ab", "b", "c", "aa"]),
                "value": f"#{rng.randrange(self.CALLS)};{rng.choice('xyz')}",
                "ts": now,
            }
            if rng.random() < 0.2:
                event["headers"] = [["h", "1"]]
            events.append(event)
        return events
