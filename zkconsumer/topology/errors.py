"""Errors for invalid arguments, and errors that bypass the error handlers and end the task."""

from __future__ import annotations

from zkconsumer.errors import StreamsError


class InvalidArgumentError(StreamsError, ValueError):
    """Raised if an argument has an invalid value."""


class WrongTypeError(StreamsError, TypeError):
    """Raised if an argument has the wrong type."""


class FatalError(Exception):
    """An error that ends the task. No error handler is called."""


class FlushError(StreamsError, FatalError):
    """The changes in a record cache could not be written or forwarded.

    Args:
        store: name of the store.
        error: error raised by the store or the flush listener.
    """

    def __init__(self, store: str, error: BaseException) -> None:
        described = str(error) if isinstance(error, StreamsError) else f"{type(error).__name__}: {error}"
        super().__init__(f"store {store!r}: record cache flush failed: {described}")
