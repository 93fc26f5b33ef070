"""The functions of pipelines; ``DslRunner.java`` has the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkconsumer.topology import Processor, ProcessorContext, Record
from zkconsumer.topology.stores import Windowed


def show(value: Any) -> str:
    """Return an object as text."""
    if isinstance(value, Windowed):
        return f"{value.key}[{value.start},{value.end}]"
    return "null" if value is None else str(value)


def _length(value: Any) -> int:
    return 0 if value is None else len(show(value))


def is_odd(key: Any, value: Any) -> bool:
    return (_length(key) + _length(value)) % 2 == 1


def has_a(_key: Any, value: Any) -> bool:
    return "a" in show(value)


def add_x(_key: Any, value: Any) -> str | None:
    return None if value is None else show(value) + "x"


def add_key(key: Any, value: Any) -> str:
    return f"{show(key)}/{show(value)}"


def drop_thirds(_key: Any, value: Any) -> str | None:
    return None if _length(value) % 3 == 0 else show(value)


def first(_key: Any, value: Any) -> str | None:
    return show(value)[:1] if _length(value) else None


def text(key: Any, _value: Any) -> str | None:
    return None if key is None else show(key)


def constant(_key: Any, _value: Any) -> str:
    return "c"


def swap(key: Any, value: Any) -> tuple[str | None, str | None]:
    return _text(value), _text(key)


def by_first(_key: Any, value: Any) -> tuple[str | None, str | None]:
    return first(None, value), _text(value)


def _text(value: Any) -> str | None:
    return None if value is None else show(value)


def chars(value: Any) -> list[str]:
    return list(show(value)) if value is not None else []


def chars_as_keys(_key: Any, value: Any) -> list[tuple[str, Any]]:
    return [(one, value) for one in chars(value)]


def ignore(_key: Any, _value: Any) -> None:
    pass


class AddPlace(Processor):
    """Adds the place of the source record to values."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record) -> None:
        value, metadata = record.value, self._context.record_metadata
        if value is not None:
            place = "none" if metadata is None else "-".join(show(part) for part in metadata)
            value = f"{show(value)}@{place}"
        self._context.forward(record.with_value(value))


def joined(one: Any, other: Any) -> str:
    return f"{show(one)}+{show(other)}"


def empty() -> str:
    return ""


def reduce(one: Any, other: Any) -> str | None:
    return None if "d" in show(other) else _cut(f"{show(one)},{show(other)}")


def subtract(one: Any, other: Any) -> str | None:
    return None if "e" in show(other) else _cut(f"{show(one)}-{show(other)}")


def aggregate(_key: Any, value: Any, total: Any) -> str | None:
    return None if "d" in show(value) else _cut(show(total) + show(value))


def other(_key: Any, value: Any, total: Any) -> str:
    return _cut(f"{show(total)}({show(value)})")


def merge(_key: Any, one: Any, second: Any) -> str:
    return _cut(f"{show(one)}|{show(second)}")


def remove(_key: Any, value: Any, total: Any) -> str:
    return _cut(f"{show(total)}-{show(value)}")


def _cut(text: str) -> str:
    return text[-30:]


PREDICATES: dict[str, Callable[[Any, Any], bool]] = {"odd": is_odd, "a": has_a}
VALUES: dict[str, Callable[[Any, Any], Any]] = {"x": add_x, "key": add_key, "thirds": drop_thirds}
KEYS: dict[str, Callable[[Any, Any], Any]] = {"first": first, "text": text, "const": constant}
PAIRS: dict[str, Callable[[Any, Any], Any]] = {"swap": swap, "first": by_first}
