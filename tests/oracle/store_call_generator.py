"""Random calls of stores, in the format of ``OracleRunner.java``."""

from __future__ import annotations

import random
from typing import Any

Json = Any


def random_call(rng: random.Random, store: Json, scale: int) -> Json:
    """Return any call of a store, whose times are multiples of ``scale`` before and after that of the record."""
    writes, reads = _random_calls(rng, store, scale)
    return ["store", store["name"], *rng.choice(writes + reads)]


def random_call_of_reader(rng: random.Random, store: Json, scale: int) -> Json:
    """Return a call of a global store by a processor that may only read it, and sometimes one that changes it.

    Kafka Streams rejects the change before it looks at the arguments, so they are valid: not the key of the record,
    which can be null.
    """
    writes, reads = _random_calls(rng, store, scale)
    if rng.random() < 0.8:
        return ["store", store["name"], *rng.choice(reads)]
    method, *arguments = ("a" if argument == "$k" else argument for argument in rng.choice(writes))
    return ["store", store["name"], method, *arguments]


def _random_calls(rng: random.Random, store: Json, scale: int) -> tuple[list[Json], list[Json]]:
    """Return calls that change a store, and calls that read it."""
    key = rng.choice(["$k", "$k", "$k", "a", "ab", "b"])
    low_high = rng.choice([("a", "b"), ("a", "az"), (None, "b"), ("aa", None), ("b", "a"), (None, None)])
    value = rng.choice(["$v", "$v", "$v", "w", None])
    back, ahead = [-rng.choice([0, 1, 2, 5, 9]) * scale], [rng.choice([0, 1]) * scale]
    match store["kind"]:
        case "versioned":
            put = ["put", key, value, rng.choice([back, [0]])]
            return [put] * 3 + [["delete", key, back]], [["get", key], ["as_of", key, back], ["as_of", key, back]]
        case "window" | "timestamped_window":
            put = ["put", key, value, rng.choice([back, [0], [0]])]
            return [put] * 5, [["fetch", key, rng.choice([back, [0]])], *window_scans(rng, key, low_high, back, ahead)]
        case "session":
            put = ["put", key, back, [0], value]
            reads = [["fetch_session", key, back, [0]], *session_scans(rng, key, low_high, back, ahead)]
            return [put] * 4 + [["remove", key, back, [0]]], reads
    return _key_value_calls(rng, store, key, value, low_high)


def window_scans(rng: random.Random, key: str, low_high: Json, first: Json, last: Json) -> list[Json]:
    """Return reads of several windows: of a key, a range of keys, or all keys, between two times."""
    return [
        [rng.choice(["times", "reverse_times"]), key, first, last],
        [rng.choice(["keys", "reverse_keys"]), *low_high, first, last],
        [rng.choice(["fetch_all", "reverse_fetch_all"]), first, last],
        [rng.choice(["all", "reverse_all"])],
    ]


def session_scans(rng: random.Random, key: str, low_high: Json, first: Json, last: Json) -> list[Json]:
    """Return reads of several sessions: of a key, or a range of keys, that overlap two times."""
    return [
        [rng.choice(["find", "reverse_find"]), key, first, last],
        [rng.choice(["find_keys", "reverse_find_keys"]), *low_high, first, last],
        [rng.choice(["fetch", "reverse_fetch"]), key],
        [rng.choice(["fetch_keys", "reverse_fetch_keys"]), *low_high],
    ]


def _key_value_calls(
    rng: random.Random, store: Json, key: str, value: str | None, low_high: Json
) -> tuple[list[Json], list[Json]]:
    writes = [["put", key, value]] * 4 + [["put_if_absent", key, value], ["delete", key]]
    reads = [["get", key], ["range", *low_high], ["all"], ["prefix", rng.choice(["a", "b", "ab"])]]
    if not store.get("caching"):  # caches of the JVM return deleted keys when they are read backward
        writes.append(["delete_all"])
        reads += [["reverse_range", *low_high], ["reverse_all"]]
    return writes, reads
