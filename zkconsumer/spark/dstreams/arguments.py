"""Checks of the arguments of ``KafkaUtils``."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from pyspark.core.rdd import RDD

from zkconsumer.argument_checks import check_type, describe
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError
from zkconsumer.zookeeper.registry import check_stream_count, check_topic_name


class ArgumentTypeError(ConfigurationError, TypeError):
    """An argument has the wrong type. It is also a TypeError, as in pyspark 2.4."""


@contextlib.contextmanager
def naming(argument: str) -> Iterator[None]:
    """Add the name of an argument to the ``ConfigurationError`` that the block raises."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{argument}: {error}") from error


def check_collection(name: str, value: object, expected: type[dict[Any, Any]] | type[list[Any]]) -> None:
    """Raise ``ArgumentTypeError``, with the message of pyspark 2.4, unless ``value`` is a dict or a list."""
    if not isinstance(value, expected):
        raise ArgumentTypeError(f"{name} should be {expected.__name__}, got {describe(value)}")


def check_functions(**functions: object) -> None:
    """Raise ``ConfigurationError`` if one of the named arguments is not a function."""
    for name, function in functions.items():
        if not callable(function):
            raise ConfigurationError(f"{name} must be a function, got {describe(function)}")


def check_property(argument: str, name: str, value: object) -> None:
    """Raise ``ConfigurationError`` if an argument is not a valid value of a consumer property."""
    check_type(argument, value, str, "a str")
    with naming(argument):
        ConsumerConfig.from_dict({"zookeeper.connect": "none", "group.id": "none", name: value})


def check_streams(topics: Mapping[str, int]) -> dict[str, int]:
    """Return ``topics``, or raise ``ConfigurationError`` unless it maps topic names to numbers of threads."""
    if not topics:
        raise ConfigurationError("topics must contain a topic and its number of threads, got an empty dict")
    check_topics(topics)
    return {topic: check_stream_count(f"topics: topic {topic!r}", threads) for topic, threads in topics.items()}


def check_topics(topics: Iterable[str]) -> None:
    """Raise ``ConfigurationError`` if one of ``topics`` is not a valid topic name."""
    with naming("topics"):
        for topic in topics:
            check_topic_name(topic)


def with_two_arguments(func: Callable[..., Any]) -> Callable[[datetime, RDD[Any]], Any]:
    """Return a function of time and RDD that calls ``func(time, rdd)``, or ``func(rdd)`` if it takes one argument.

    Spark 2.4 counts the parameters of ``func.__code__``, so it rejects other callable objects and calls methods with
    one argument too many.

    Raises:
        ArgumentTypeError: ``func`` cannot be called with one or two arguments.
    """
    if _accepts(func, 2):
        return func
    if _accepts(func, 1):
        return lambda _time, rdd: func(rdd)
    raise ArgumentTypeError(f"func should take one or two arguments, got {describe(func)}")


def _accepts(func: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(func).bind(*range(count))
    except (TypeError, ValueError):  # not callable, without a signature, or with other parameters
        return False
    return True
