"""Checks of the arguments that applications pass to the consumer classes."""

from __future__ import annotations

import contextlib
import decimal
import math
import numbers
import operator
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NoReturn

from zkconsumer.errors import ConfigurationError
from zkconsumer.excerpt import excerpt
from zkconsumer.message import TopicPartition


def check_type(name: str, value: object, expected: type | tuple[type, ...], requirement: str) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is an instance of ``expected``.

    Args:
        name: name of the argument.
        value: the argument.
        expected: valid types.
        requirement: description of the valid types, which follows "must be" in the message.
    """
    if not isinstance(value, expected):
        reject(name, value, requirement)


def reject(name: str, value: object, requirement: str) -> NoReturn:
    """Raise ``ConfigurationError`` for an argument.

    Args:
        name: name of the argument.
        value: the argument.
        requirement: description of valid arguments, which follows "must be" in the message.
    """
    raise ConfigurationError(f"{name} must be {requirement}, got {describe(value)}")


def to_integer(value: Any) -> int | None:
    """Return an integer, such as an int or a NumPy integer, as an int; None for other objects, including booleans."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def check_integer(name: str, value: Any, minimum: int, maximum: int) -> int:
    """Return an integer, such as an int or a NumPy integer, as an int.

    Raises:
        ConfigurationError: ``value`` is not an integer between ``minimum`` and ``maximum``, inclusive.
    """
    number = to_integer(value)
    if number is None or not minimum <= number <= maximum:
        raise ConfigurationError(f"{name} must be an integer between {minimum} and {maximum}, got {describe(value)}")
    return number


def to_flag(value: Any) -> bool | None:
    """Return True, False, or a NumPy boolean as a bool; None for other objects."""
    if isinstance(value, bool):
        return value
    numpy = sys.modules.get("numpy")  # otherwise, the value is no NumPy boolean
    return bool(value) if numpy is not None and isinstance(value, numpy.bool_) else None


def check_flag(name: str, value: object) -> bool:
    """Return True, False, or a NumPy boolean as a bool.

    Raises:
        ConfigurationError: ``value`` is none of them.
    """
    flag = to_flag(value)
    if flag is None:
        reject(name, value, "True or False")
    return flag


def to_number(value: Any) -> float | None:
    """Return a real number, such as an int, a ``Decimal`` or a NumPy number, as a float; None for other objects.

    The result of numbers that are too large for a float is infinite. Booleans are not numbers.
    """
    if not isinstance(value, numbers.Real | decimal.Decimal) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if operator.gt(value, 0) else -math.inf
    except ValueError:  # a signaling NaN
        return math.nan


def check_function(name: str, value: object) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is a function, another callable object, or None."""
    if value is not None and not callable(value):
        raise ConfigurationError(f"{name} must be a function or None, got {describe(value)}")


def check_attribute(name: str, value: object, attribute: str, requirement: str) -> None:
    """Raise ``ConfigurationError`` unless ``value`` has an attribute, and is not a class.

    A property of the class is not called. Proxies are valid: ``weakref.proxy`` has the class of its object, and others
    have ``__getattr__``.
    """
    if isinstance(value, type) or all(getattr(one, attribute, None) is None for one in (value.__class__, value)):
        reject(name, value, requirement)


def check_methods(name: str, value: Any, *methods: str) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is None or an object with ``methods``."""
    if value is None:
        return
    if isinstance(value, type):
        raise ConfigurationError(f"{name} must be an instance, got class {value.__name__}")
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing:
        raise ConfigurationError(
            f"{name} must have the methods {' and '.join(methods)}, got {describe(value)} without {missing[0]}"
        )


def check_partition(topic: object, partition: object) -> TopicPartition:
    """Return a ``TopicPartition``.

    Raises:
        ConfigurationError: ``topic`` is not a str, or ``partition`` is not a partition number.
    """
    check_type("topic", topic, str, "a str")
    return TopicPartition(str(topic), check_integer("partition", partition, 0, (1 << 31) - 1))


def check_offsets(offsets: Any, maximum: int) -> dict[TopicPartition, int]:
    """Return offsets by partition.

    Raises:
        ConfigurationError: ``offsets`` is not a dict from partitions to offsets of at most ``maximum``.
    """
    check_type("offsets", offsets, Mapping, "a dict such as {TopicPartition('orders', 0): 100}")
    found = {}
    for key, offset in offsets.items():
        partition = check_topic_partition(key)
        found[partition] = check_integer(f"offset of partition {partition}", offset, 0, maximum)
    return found


def check_topic_partition(value: Any) -> TopicPartition:
    """Return a tuple of a topic and a partition number, such as a ``TopicPartition``, as a ``TopicPartition``.

    Raises:
        ConfigurationError: ``value`` is not such a tuple.
    """
    if not isinstance(value, tuple) or len(value) != 2:
        raise ConfigurationError(
            f"a partition must be a TopicPartition such as TopicPartition('orders', 0), got {describe(value)}"
        )
    return check_partition(*value)


def describe(value: object) -> str:
    """Return a description of a value, without the contents of collections, which may contain passwords."""
    if isinstance(value, str | bytes):
        return excerpt(value)
    with contextlib.suppress(ValueError):  # raised for integers of more than 4,300 digits
        if value is None or isinstance(value, numbers.Number | timedelta):
            return repr(value)
    return f"class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"


__all__ = [
    "check_attribute",
    "check_flag",
    "check_function",
    "check_integer",
    "check_methods",
    "check_offsets",
    "check_partition",
    "check_topic_partition",
    "check_type",
    "describe",
    "reject",
    "to_flag",
    "to_integer",
    "to_number",
]
