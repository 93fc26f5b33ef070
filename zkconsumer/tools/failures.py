"""Failures of a tool: its exit code, and the JSON object that describes its error."""

from __future__ import annotations

import enum

from zkconsumer.errors import (
    AuthenticationError,
    ClosedError,
    ConfigurationError,
    ConsumerRebalanceFailedError,
    RetriableError,
    UnsupportedBrokerError,
    ZkConsumerError,
)
from zkconsumer.tools import output

#: Type of the error object for arguments that the command-line parser rejects.
USAGE_ERROR = "UsageError"

#: Errors after which the result is unknown, for example because a server did not respond.
_UNDETERMINED = (
    RetriableError,
    AuthenticationError,
    UnsupportedBrokerError,
    ConsumerRebalanceFailedError,
    ClosedError,
)


class ExitCode(enum.IntEnum):
    """Exit code of the command ``zkconsumer``; a tool that is terminated by a signal returns 128 plus its number."""

    SUCCESS = 0
    #: A problem was found, for example a group that does not exist, or the output could not be written.
    PROBLEM = 1
    #: An argument or a property is invalid, or a properties file is invalid or cannot be read.
    USAGE = 2
    #: The result could not be determined: a server was unreachable, timed out, or denied access.
    UNDETERMINED = 3

    @classmethod
    def of(cls, error: ZkConsumerError) -> ExitCode:
        """Return the exit code for an error that terminates a tool."""
        if isinstance(error, ConfigurationError):
            return cls.USAGE
        return cls.UNDETERMINED if isinstance(error, _UNDETERMINED) else cls.PROBLEM


def print_error(kind: str, message: str, *, retriable: bool = False) -> None:
    """Print the JSON object of an error.

    Args:
        kind: name of the exception class, or ``USAGE_ERROR``.
        message: description of the error.
        retriable: whether the command may succeed if it is repeated.
    """
    output.print_json({"error": {"type": kind, "message": message, "retriable": retriable}})
