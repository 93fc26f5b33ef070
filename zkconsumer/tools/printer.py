"""Prints formatted messages to standard output, and declares the corresponding tool options."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, field

from zkconsumer.message import MessageAndMetadata
from zkconsumer.tools import common, output
from zkconsumer.tools.formatters import Formatter, json_line, make_formatter, parse_properties
from zkconsumer.tools.output import OutputClosedError, OutputError

#: Message of Kafka's tools if a message cannot be written.
OUTPUT_CLOSED = "Unable to write to standard out, closing consumer."


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the number and format of the printed messages."""
    parser.add_argument(
        "--max-messages",
        type=common.positive,
        metavar="N",
        help="maximum number of messages to print before exiting (default: no limit)",
    )
    parser.add_argument(
        "--formatter",
        default="kafka.tools.DefaultMessageFormatter",
        help="class that formats messages (default: %(default)s)",
    )
    parser.add_argument(
        "--property", action="append", default=[], metavar="KEY=VALUE", help="property of the formatter"
    )
    parser.add_argument(
        "--skip-message-on-error",
        action="store_true",
        help="skip a message that cannot be formatted instead of exiting",
    )
    common.add_json(parser)


def choose_formatter(options: argparse.Namespace) -> Formatter:
    """Return the formatter selected by ``--json``, ``--formatter`` and ``--property``.

    Raises:
        ConfigurationError: the formatter is unknown, or one of its properties has an invalid value.
    """
    return json_line if options.json else make_formatter(options.formatter, parse_properties(options.property))


@dataclass(frozen=True, slots=True)
class _Output:
    """The output of one message.

    Attributes:
        number: sequence number of the message, starting at 1; 0 before the first message.
        message: the message; None before the first message.
        line: bytes to print.
        written: number of bytes written by each system call.
    """

    number: int
    message: MessageAndMetadata | None
    line: bytes
    written: list[int] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether all bytes were written."""
        return sum(self.written) == len(self.line)


class MessagePrinter:
    """Writes messages to standard output without buffering, and counts them.

    A signal handler can raise an exception, such as ``KeyboardInterrupt``, between any two steps of ``print``.
    Therefore, the count is derived from the number of bytes written.
    """

    def __init__(self, options: argparse.Namespace, formatter: Formatter) -> None:
        """Create a printer.

        Args:
            options: parsed options, including those that ``add_output_options`` adds.
            formatter: function that returns the bytes to print for a message.

        Raises:
            OutputError: the process was started with standard output closed.
        """
        if sys.stdout is None:  # file descriptor 1 may now belong to another file, such as a socket
            raise OutputError("it is closed")
        self._last = _Output(0, None, b"")
        self._formatter = formatter
        self._limit: int | None = options.max_messages
        self._skip_on_error: bool = options.skip_message_on_error
        self._out = sys.stdout.fileno()

    @property
    def count(self) -> int:
        """Number of messages that were written completely or skipped."""
        last = self._last
        return last.number if last.is_complete else last.number - 1

    @property
    def last_message(self) -> MessageAndMetadata | None:
        """The message of the last ``print`` call if it was written completely or skipped, otherwise None."""
        last = self._last
        return last.message if last.is_complete else None

    @property
    def has_reached_limit(self) -> bool:
        """Whether ``--max-messages`` is set and that many messages were printed or skipped."""
        return self._limit is not None and self.count == self._limit

    def print(self, message: MessageAndMetadata) -> None:
        """Write a message; with ``--skip-message-on-error``, skip a message that cannot be formatted.

        Raises:
            OutputClosedError: the reader of the pipe exited.
            OutputError: standard output cannot be written, for example because the disk is full.
        """
        rest = self._format(message)
        current = self._last = _Output(self.count + 1, message, rest)
        try:
            while rest:
                # One call both writes and stores the result, because signal handlers can run between two calls.
                current.written.extend(map(os.write, (self._out,), (rest,)))
                rest = rest[current.written[-1] :]
        except ConnectionError as error:
            output.note(OUTPUT_CLOSED)
            raise OutputClosedError from error
        except OSError as error:
            output.note(OUTPUT_CLOSED)
            raise OutputError(error.strerror or str(error)) from error

    def _format(self, message: MessageAndMetadata) -> bytes:
        try:
            return self._formatter(message)
        except Exception as error:
            if not self._skip_on_error:
                raise
            output.note(f"Error processing message, skipping this message: {error!r}")
            return b""
