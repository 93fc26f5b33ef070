"""Checks of the arguments that applications pass to the consumer classes."""

from __future__ import annotations

from typing import Any

from zkconsumer.errors import ConfigurationError
from zkconsumer.excerpt import excerpt
from zkconsumer.message import TopicPartition


def check_type(name: str, value: object, expected: type | tuple[type, ...], requirement: str) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is an instance of ``expected``; a bool is not an int.

    Args:
        name: name of the argument.
        value: the argument.
        expected: valid types.
        requirement: description of the valid types, which follows "must be" in the message.
    """
    if not isinstance(value, expected) or isinstance(value, bool):
        raise ConfigurationError(f"{name} must be {requirement}, got {_describe(value)}")


def check_integer(name: str, value: object, minimum: int, maximum: int) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is an int between ``minimum`` and ``maximum``, inclusive."""
    if type(value) is not int or not minimum <= value <= maximum:
        raise ConfigurationError(f"{name} must be an integer between {minimum} and {maximum}, got {_describe(value)}")


def check_function(name: str, value: object) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is a function, another callable object, or None."""
    if value is not None and not callable(value):
        raise ConfigurationError(f"{name} must be a function or None, got {_describe(value)}")


def check_methods(name: str, value: Any, parent: type, *methods: str) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is None or an object, not a class, that has ``methods``.

    Args:
        name: name of the argument.
        value: the argument.
        parent: class whose subclasses have the methods, named in the message.
        methods: method names.
    """
    if value is None:
        return
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing or isinstance(value, type):
        raise ConfigurationError(
            f"{name} must be an instance of a subclass of {parent.__name__}, got {_describe(value)}"
        )


def check_topic_partition(value: object) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is a ``TopicPartition``."""
    check_type("a partition", value, TopicPartition, "a TopicPartition such as TopicPartition('orders', 0)")


def _describe(value: object) -> str:
    """Return a description of a value, without the contents of collections, which may contain passwords."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return excerpt(value) if isinstance(value, (str, bytes)) else repr(value)
    return f"class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"


__all__ = ["check_function", "check_integer", "check_methods", "check_topic_partition", "check_type"]
