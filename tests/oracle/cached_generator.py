"""Random scenarios of cached stores, in the format of ``OracleRunner.java``."""

from __future__ import annotations

import random
from typing import Any

from .store_call_generator import session_scans, window_scans

Json = Any

KINDS = ("key_value", "timestamped", "window", "timestamped_window", "session")

#: Bytes of caches: none, some entries, and more often all, because other reads are not compared with evictions.
CACHE_BYTES = (0, 150, 400, 1_000, 2_500, 1 << 20, 1 << 20)

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
        self._cache_bytes = rng.choice(CACHE_BYTES)
        self._is_whole = self._cache_bytes in (0, max(CACHE_BYTES))
        self._stores = [self._new_store(number) for number in range(3)]
        self._topics = ["in", "other"][: rng.randint(1, 2)]
        self.request: Json = {
            "steps": self._steps(),
            "events": self._events(),
            "reads": self._reads(),
            "cache_bytes": self._cache_bytes,
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
        self._listeners_put = bool(later)
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
            case "session":
                calls = [["put", key, back, [0], value]] * 4
                if store["deletes"]:
                    calls.append(["remove", key, back, [0]])
                if not self._expires:
                    calls.append(["fetch_session", key, back, [0]])
            case _:
                calls = [["put", key, value]] * 4 + [["get", key], ["put_if_absent", key, value]]
                if store["deletes"]:
                    calls.append(["delete", key])
        if self._is_scanned(store):
            calls += self._scans(store["kind"], key)
            if self._is_whole:
                calls += self._part_scans(store, key, back, [1])
        chosen = ["store", store["name"], *rng.choice(calls)]
        if chosen[2] in ("reverse_find", "reverse_fetch"):  # Kafka Streams fails if the store is empty
            return ["when", "", [["store", store["name"], "put", key, [0], [0], "w"], chosen]]
        return chosen

    def _is_scanned(self, store: Json) -> bool:
        is_key_value = store["kind"] in ("key_value", "timestamped")
        return not store["deletes"] and (is_key_value or not self._expires)

    def _scans(self, kind: str, key: str) -> list[Json]:
        """Return reads that use the same entries of the cache here and in Kafka Streams."""
        match kind:
            case "window" | "timestamped_window":
                return [["times", key, 0, LAST_MS], ["fetch_all", 0, LAST_MS], ["all"]]
            case "session":
                return [["find", key, 0, LAST_MS], ["fetch", key]]
        return [["range", "a", "b"], ["all"], ["prefix", "a"]]

    def _part_scans(self, store: Json, key: str, first: Json, last: Json) -> list[Json]:
        """Return reads that can use other entries of the cache than in Kafka Streams, which changes evictions.

        Kafka Streams returns windows several times if one end of a key range is open, and can fail if sessions of a key
        are read backward up to a time.
        """
        rng = self._rng
        closed = [("a", "b"), ("a", "az"), ("aa", "b"), ("b", "a")]
        opened = [(None, "b"), ("aa", None), (None, None)]
        match store["kind"]:
            case "window" | "timestamped_window":
                return window_scans(rng, key, rng.choice(closed), first, last)
            case "session":
                scans = session_scans(rng, key, rng.choice(closed + opened), first, last)
                return [scan if scan[0] != "reverse_find" else [*scan[:3], LAST_MS] for scan in scans]
        low_high = rng.choice(closed + opened)
        return [["range", *low_high], ["reverse_range", *low_high], ["reverse_all"], ["prefix", "ab"]]

    def _reads(self) -> list[Json]:
        """Return reads before the last commit; evictions do not matter unless listeners then put to the third store."""
        rng = self._rng
        reads: list[Json] = []
        for store in filter(self._is_scanned, self._stores):
            for _ in range(3):
                first, last = rng.choice([0, 0, 1_000, 100_000]), rng.choice([0, 31_000, 150_000, LAST_MS, LAST_MS])
                key = rng.choice(["a", "ab", "b", "tick"])
                scans = self._scans(store["kind"], key)
                if self._is_whole or not self._listeners_put:
                    scans += self._part_scans(store, key, first, last)
                reads += [["store", store["name"], *scan] for scan in scans]
        return reads

    def _events(self) -> list[Json]:
        rng = self._rng
        now, events = 0, []
        for _ in range(rng.randint(10, 80)):
            now = max(0, now + rng.choice([0, 1, -1, 1_000, -1_000, 30_000, 200_000 if self._expires else 90_000]))
            if not self._expires:
                now = min(now, RETENTION_MS - 10_000)
            event: Json = {
                "topic": rng.choice(self._topics),
                "key": rng.choice(["a", "a", "ab", "b", "c", "aa", ""]),
                "value": f"#{rng.randrange(self.CALLS)};{rng.choice('xyz')}",
                "ts": now,
            }
            if rng.random() < 0.2:
                event["headers"] = [["h", "1"]]
            events.append(event)
        return events
