"""Checks of the arguments of ``KafkaUtils``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pyspark.core.rdd import RDD

from zkconsumer.argument_checks import describe
from zkconsumer.errors import ConfigurationError


class ArgumentTypeError(ConfigurationError, TypeError):
    """An argument has the wrong type. It is also a TypeError, as in pyspark 2.4."""


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
