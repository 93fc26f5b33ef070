"""Argument checks for ``Topology``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zkconsumer.errors import TopologyError
from zkconsumer.topology.processor import Processor, ProcessorSupplier
from zkconsumer.topology.serdes import Serde

if TYPE_CHECKING:
    from zkconsumer.topology.stores.builder import StoreBuilder


def check_name(what: str, name: Any) -> None:
    """Raise TopologyError unless ``name`` is a non-empty str."""
    check_text(f"the name of a {what}", name)


def check_text(what: str, text: Any) -> None:
    """Raise TopologyError unless ``text`` is a non-empty str."""
    if not isinstance(text, str) or not text:
        raise TopologyError(f"{what} must be a non-empty str, got {text!r}")


def check_supplier(name: str, supplier: ProcessorSupplier) -> None:
    """Raise TopologyError if ``supplier`` does not return a new ``Processor`` on each call."""
    if not callable(supplier):
        raise TopologyError(f"processor {name!r}: supplier must be a class or function, got {supplier!r}")
    try:
        first, second = supplier(), supplier()
    except Exception as error:
        raise TopologyError(f"processor {name!r}: supplier {supplier!r} failed: {error}") from error
    if first is second:
        raise TopologyError(f"processor {name!r}: supplier {supplier!r} must return a new object on each call")
    if not isinstance(first, Processor):
        raise TopologyError(f"processor {name!r}: supplier {supplier!r} must return a Processor, got {first!r}")


def check_offset_reset(where: str, offset_reset: Any) -> None:
    """Raise TopologyError unless ``offset_reset`` is a start position or None."""
    if offset_reset not in (None, "earliest", "latest"):
        raise TopologyError(f"{where}: offset_reset must be 'earliest' or 'latest', got {offset_reset!r}")


def check_global_store(builder: StoreBuilder) -> None:
    """Raise TopologyError if the changes of a global store are logged."""
    if builder.logging:
        raise TopologyError(f"global store {builder.name!r}: logging must be False, got {builder.logging!r}")


def to_tuple(what: str, items: Any) -> tuple[Any, ...]:
    """Return ``items`` as a tuple, or raise TopologyError if it is not iterable."""
    try:
        return tuple(items)
    except TypeError:
        raise TopologyError(f"the {what} must be a list, got {items!r}") from None


def check_functions(where: str, **functions: Any) -> None:
    """Raise TopologyError if one of ``functions`` is neither callable nor None."""
    for name, function in functions.items():
        if isinstance(function, Serde):
            raise TopologyError(
                f"{where}: {name} must be a function, got a Serde; pass its serialize or deserialize function"
            )
        if function is not None and not callable(function):
            raise TopologyError(f"{where}: {name} must be a function, got {function!r}")
