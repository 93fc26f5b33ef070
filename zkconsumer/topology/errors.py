"""Errors of calls with invalid arguments, for which no error handler is recommended."""

from __future__ import annotations

from zkconsumer.errors import StreamsError


class InvalidArgumentError(StreamsError, ValueError):
    """An argument of a call is invalid."""


class WrongTypeError(StreamsError, TypeError):
    """An argument of a call has the wrong type."""
