"""Pipelines that must be rejected."""

from __future__ import annotations

import random
from typing import Any

Json = Any

_SOURCE = {"op": "stream", "out": "s", "topics": ["in"]}
_GROUP = {"op": "group_by_key", "in": "s", "out": "g", "key": "S", "value": "S"}


def invalid(rng: random.Random) -> tuple[Json, str]:
    """Return a request and a pattern of the error."""
    steps, pattern = rng.choice(_CASES)(rng)
    return {"steps": [_SOURCE, *steps]}, pattern


def _same_name(rng: random.Random) -> tuple[list[Json], str]:
    kinds = rng.sample(
        [
            {"op": "filter", "f": "odd"},
            {"op": "map_values", "f": "x"},
            {"op": "peek"},
            {"op": "to", "topic": "out"},
            {"op": "select_key", "f": "first"},
        ],
        2,
    )
    return [{**kind, "in": "s", "name": "same"} for kind in kinds], "'same' already exists"


def _invalid_name(rng: random.Random) -> tuple[list[Json], str]:
    name = rng.choice(("a b", "a/b", ".", "..", "x" * 250, "ü"))
    step = rng.choice(({"op": "filter", "f": "odd"}, {"op": "peek"}, {"op": "to", "topic": "out"}))
    return [{**step, "in": "s", "name": name}], "a name must consist of 1 to 249"


def _invalid_store_name(rng: random.Random) -> tuple[list[Json], str]:
    name = rng.choice(("a b", "a/b", "x" * 250))
    return [_GROUP, {"op": "count", "of": "stream", "in": "g", "store": {"name": name}}], "must consist of 1 to 249"


def _overlapping_topics(rng: random.Random) -> tuple[list[Json], str]:
    topics = rng.choice((["in", "other"], ["other", "in"], ["in", "a", "b"]))
    return [{"op": "stream", "out": "t", "topics": topics}], "overlap: they read"


def _topic_of_table(rng: random.Random) -> tuple[list[Json], str]:
    kind = rng.choice(("table", "global_table"))
    return [{"op": kind, "out": "t", "topic": "in"}], "topic 'in'"


def _same_store(_rng: random.Random) -> tuple[list[Json], str]:
    store = {"name": "same"}
    steps = [{"op": "count", "of": "stream", "in": "g", "store": dict(store)} for _ in range(2)]
    return [_GROUP, *steps], "store 'same' already exists"


def _short_retention(rng: random.Random) -> tuple[list[Json], str]:
    kind = rng.choice(("tumbling", "sliding", "session"))
    windows = {"kind": kind, "size": 100, "advance": 100, "grace": rng.choice((0, 50))}
    store = {"name": "short", "retention": 99}
    return [_GROUP, {"op": "windowed_count", "in": "g", "windows": windows, "store": store}], "retention_ms must be at"


def _suppress_without_windows(rng: random.Random) -> tuple[list[Json], str]:
    steps = [_GROUP, {"op": "count", "of": "stream", "in": "g", "out": "t"}]
    if rng.random() < 0.5:
        steps.append({"op": "filter", "f": "odd", "in": "t", "out": "t"})
    return [*steps, {"op": "suppress", "in": "t"}], "requires a windowed aggregation"


def _suppress_versioned(rng: random.Random) -> tuple[list[Json], str]:
    steps = [{"op": "table", "out": "t", "topic": "t", "store": {"name": "v", "history": 100}}]
    if rng.random() < 0.5:
        steps.append({"op": "filter", "f": "odd", "in": "t", "out": "t"})
    return [*steps, {"op": "suppress", "in": "t", "wait": 10}], "suppress"


def _grace_without_versions(rng: random.Random) -> tuple[list[Json], str]:
    history = rng.choice((None, 50))
    store = {"name": "v"} if history is None else {"name": "v", "history": history}
    table = {"op": "table", "out": "t", "topic": "t", "store": store}
    kind = rng.choice(("inner", "left"))
    return [
        table,
        {"op": "join_table", "in": "s", "other": "t", "kind": kind, "grace": 100},
    ], "requires a versioned table with"


def _versioned_global_table(_rng: random.Random) -> tuple[list[Json], str]:
    store = {"name": "v", "history": 100}
    return [{"op": "global_table", "out": "t", "topic": "t", "store": store}], "cannot be versioned"


def _same_repartition_topic(_rng: random.Random) -> tuple[list[Json], str]:
    step = {"op": "repartition", "in": "s", "name": "same", "key": "S", "value": "S"}
    return [step, dict(step)], "'same-repartition' already exists"


_CASES = (
    _same_name,
    _invalid_name,
    _invalid_store_name,
    _overlapping_topics,
    _topic_of_table,
    _same_store,
    _short_retention,
    _suppress_without_windows,
    _suppress_versioned,
    _grace_without_versions,
    _versioned_global_table,
    _same_repartition_topic,
)
