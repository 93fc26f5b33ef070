"""Calls of stores, and the texts of their results; ``OracleRunner.java`` does the same with Kafka Streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkconsumer.topology.stores import ValueAndTimestamp, VersionedRecord, Windowed


def call(store: Any, kind: str, method: str, arguments: list[Any], timestamp: int = 0) -> str:
    """Call a store, and return the text of the result.

    Args:
        store: the store.
        kind: its kind.
        method: name of the method.
        arguments: those of the method.
        timestamp: that of values that have one.
    """

    def wrap(value: Any) -> Any:
        return ValueAndTimestamp(value, timestamp) if value is not None else None

    put = wrap if kind.startswith("timestamped") else lambda value: value
    calls = {"versioned": versioned, "window": window, "timestamped_window": window, "session": session}
    return calls.get(kind, key_value)(store, method, arguments, put)


def key_value(store: Any, method: str, a: list[Any], wrap: Callable[[Any], Any]) -> str:
    """Call a key-value store."""
    match method:
        case "get" | "delete":
            return show(getattr(store, method)(a[0]))
        case "put":
            store.put(a[0], wrap(a[1]))
            return "put"
        case "put_if_absent":
            return show(store.put_if_absent(a[0], wrap(a[1])))
        case "range" | "reverse_range":
            return entries(store.range(a[0], a[1], reverse=method == "reverse_range"))
        case "all" | "reverse_all":
            return entries(store.all(reverse=method == "reverse_all"))
        case "prefix":
            return entries(store.prefix_scan(a[0].encode()))
        case _:
            found = []
            for key, _value in store.all():
                found.append(key)
                store.delete(key)
            return f"[{', '.join(found)}]"


def versioned(store: Any, method: str, a: list[Any], _wrap: Callable[[Any], Any]) -> str:
    """Call a versioned store."""
    if method == "put":
        return str(store.put(a[0], a[1], a[2]))
    return show(store.delete(a[0], a[1]) if method == "delete" else store.get(*a))


def window(store: Any, method: str, a: list[Any], wrap: Callable[[Any], Any]) -> str:
    """Call a window store."""
    reverse = method.startswith("reverse_")
    match method.removeprefix("reverse_"):
        case "put":
            store.put(a[0], wrap(a[1]), a[2])
            return "put"
        case "fetch":
            return show(store.fetch(a[0], a[1]))
        case "times":
            return entries(store.fetch_times(*a, reverse=reverse))
        case "keys":
            return entries(store.fetch_keys(*a, reverse=reverse))
        case "fetch_all":
            return entries(store.fetch_all(*a, reverse=reverse))
        case _:
            return entries(store.all(reverse=reverse))


def session(store: Any, method: str, a: list[Any], _wrap: Callable[[Any], Any]) -> str:
    """Call a session store."""
    reverse = method.startswith("reverse_")
    match method.removeprefix("reverse_"):
        case "put":
            store.put(Windowed(*a[:3]), a[3])
            return "put"
        case "remove":
            store.remove(Windowed(*a))
            return "removed"
        case "fetch_session":
            return show(store.fetch_session(*a))
        case "find":
            return entries(store.find_sessions(*a, reverse=reverse))
        case "find_keys":
            return entries(store.find_sessions_of_keys(*a, reverse=reverse))
        case "fetch":
            return entries(store.fetch(*a, reverse=reverse))
        case _:
            return entries(store.fetch_keys(*a, reverse=reverse))


def show(value: Any) -> str:
    """Return the text that the other runner uses for a value."""
    match value:
        case ValueAndTimestamp(value=inner, timestamp=time):
            return f"{inner}#{time}"
        case VersionedRecord(value=inner, timestamp=time):  # the JVM's stores do not hand on the end of the validity
            return f"{inner}#{time}"
        case Windowed(key=key, start=start, end=end):
            return f"{key}@{start}/{end}"
    return "null" if value is None else str(value)


def lines(found: Any) -> list[str]:
    """Return the text of each entry."""
    return [f"{show(key)}={show(value)}" for key, value in found]


def entries(found: Any) -> str:
    """Return the text of all entries."""
    return f"[{', '.join(lines(found))}]"


def contents(kind: str, store: Any, probes: Any = None) -> list[str]:
    """Return the entries of a store. Of a versioned one, which has no scans, return what the probes find."""
    match kind:
        case "versioned":
            return versions(store, probes["keys"], probes["times"])
        case "session":
            return lines(store.fetch_keys())
        case "bytes":
            return [f"{key.hex()}={data.hex()}" for key, data in store._map.scan()]
        case _:
            return lines(store.all())


def versions(store: Any, keys: list[str], times: list[int]) -> list[str]:
    """Return the latest version of each key, and those that were valid at the times."""
    found = []
    for key in keys:
        found.append(f"{key}={show(store.get(key))}")
        found += [f"{key}@{time}={show(store.get(key, time))}" for time in times]
    return found
