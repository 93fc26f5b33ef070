"""Output of formatted messages to standard output."""

from __future__ import annotations

import os
import sys

from zkconsumer.message import MessageAndMetadata
from zkconsumer.tools.formatters import Formatter

#: Printed by the tools when they stop because of ``OutputClosedError``.
OUTPUT_CLOSED = "Unable to write to standard out, closing consumer."


class OutputClosedError(Exception):
    """The output is closed. The message was not written, so its offset must not be committed."""


class MessagePrinter:
    """Writes messages to standard output without buffering, and counts them.

    Attributes:
        count: number of messages, including those that were skipped.
    """

    def __init__(self, formatter: Formatter, limit: int | None, *, skip_on_error: bool) -> None:
        """Create a printer.

        Args:
            formatter: returns the bytes to print.
            limit: maximum number of messages, None for no limit.
            skip_on_error: report an exception of the formatter and skip the message instead of raising it.
        """
        self.count = 0
        self._formatter = formatter
        self._limit = limit
        self._skip_on_error = skip_on_error
        self._out = sys.stdout.fileno()

    @property
    def has_reached_limit(self) -> bool:
        """Whether the maximum number of messages was printed."""
        return self.count == self._limit

    def print(self, message: MessageAndMetadata) -> None:
        """Write a message.

        Raises:
            OutputClosedError: the pipe is closed, or the disk is full.
        """
        line = self._format(message)
        while line:
            try:
                line = line[os.write(self._out, line) :]
            except OSError as error:
                raise OutputClosedError from error
        self.count += 1

    def _format(self, message: MessageAndMetadata) -> bytes:
        try:
            return self._formatter(message)
        except Exception as error:
            if not self._skip_on_error:
                raise
            print(f"Error processing message, skipping this message: {error!r}", file=sys.stderr)
            return b""
