"""Compares pipelines with Kafka Streams, and recognizes the known differences."""

from __future__ import annotations

import copy
import enum
import random
from collections import Counter
from typing import Any

from zkconsumer.errors import StreamsError, TopologyError

from . import dsl_programs
from .oracle import RELEASES, Oracle

Json = Any


class Outcome(enum.Enum):
    """How the answers of both sides compare."""

    EQUAL = "equal"
    #: Both failed.
    BOTH_FAILED = "failed on both sides"
    #: Everything but the stores is equal. Stores with caches in the JVM also show expired entries.
    EXPIRED_IN_CACHE = "expired entries in caches"
    #: Sessions and sliding windows of late records contain expired entries of the JVM's caches; without the caches of
    #: these windows, everything but the stores is equal.
    LATE_IN_CACHE = "late records with expired entries in caches"
    #: Kafka Streams fails if a record without a key reaches a left join with a grace period.
    KEY_IN_GRACE = "records without a key in joins with a grace period"
    #: Only the behavior that later releases changed differs; see ``_without_changed_behavior``.
    CHANGED_AFTER_3_9 = "behavior that Kafka Streams changed after 3.9"
    DIFFERENT = "different"


def compare(oracle: Oracle, request: Json) -> tuple[Outcome, Json, Json]:
    """Return the outcome, and the answers of this package and of Kafka Streams."""
    [expected] = oracle.send([request])
    answer = _run(request)
    outcome = _classify(request, answer, expected)
    if outcome is Outcome.DIFFERENT and request.get("cache") and _merges_windows(request):
        uncached = _without_merging_caches(request)
        [expected_uncached] = oracle.send([uncached])
        if _classify(uncached, _run(uncached), expected_uncached) in (Outcome.EQUAL, Outcome.EXPIRED_IN_CACHE):
            outcome = Outcome.LATE_IN_CACHE
    if outcome is Outcome.DIFFERENT and oracle.release != RELEASES[0]:
        unchanged = _without_changed_behavior(request)
        if unchanged != request and compare(oracle, unchanged)[0] is not Outcome.DIFFERENT:
            outcome = Outcome.CHANGED_AFTER_3_9
    return outcome, answer, expected


def is_equal_if_rebuilt(request: Json, answer: Json, rng: random.Random) -> bool:
    """Return whether the answer is the same if tasks are rebuilt at random events."""
    numbers = sorted(rng.sample(range(1, len(request["events"])), 3))
    return bool(_run({**request, "reopen": numbers}) == answer)


def _run(request: Json) -> Json:
    try:
        return dsl_programs.run(request)
    except (StreamsError, TopologyError) as error:
        return {"error": type(error).__name__, "text": str(error)}


def _classify(request: Json, answer: Json, expected: Json) -> Outcome:
    if "error" in answer and "error" in expected:
        return Outcome.BOTH_FAILED
    if answer == expected:
        return Outcome.EQUAL
    has_grace = any(step["op"] == "join_table" and "grace" in step for step in request["steps"])
    if "NullPointerException" in expected.get("error", ()) and has_grace:
        return Outcome.KEY_IN_GRACE
    if request.get("cache") and _differ_in_expired_entries(answer, expected):
        return Outcome.EXPIRED_IN_CACHE
    return Outcome.DIFFERENT


def _differ_in_expired_entries(answer: Json, expected: Json) -> bool:
    """Return whether the answers are equal, but for additional entries in the window and session stores of the JVM."""
    if "error" in answer or "error" in expected or {**answer, "stores": None} != {**expected, "stores": None}:
        return False
    for name, entries in answer["stores"].items():
        additional = Counter(expected["stores"][name])
        additional.subtract(entries)
        if any(count < 0 or (count and "[" not in entry) for entry, count in additional.items()):
            return False
    return True


def _merges_windows(request: Json) -> bool:
    return any(_is_merging(step) for step in request["steps"])


def _without_merging_caches(request: Json) -> Json:
    changed = copy.deepcopy(request)
    for step in filter(_is_merging, changed["steps"]):
        step["store"] = {**(step.get("store") or {}), "caching": False}
    return changed


def _without_changed_behavior(request: Json) -> Json:
    """Return the request without the steps that differ in Kafka Streams 4.4.0.

    It rejects global tables whose store settings have no name, and left joins with a global table keep records for
    which the key function returns None.
    """
    changed = copy.deepcopy(request)
    for step in changed["steps"]:
        if step["op"] == "global_table" and "name" not in (step.get("store") or {}):
            step.pop("store", None)
        if step["op"] == "join_global":
            step["kind"] = "inner"
    return changed


def _is_merging(step: Json) -> bool:
    """Return whether a step aggregates windows that depend on other windows of the key."""
    return step.get("windows", {}).get("kind") in ("session", "sliding")
