"""Checks that the packages of the ``topology`` extra can be imported. The driver and all workers need them."""

from __future__ import annotations

import importlib
import socket
import sys

from zkconsumer.errors import ConfigurationError
from zkconsumer.optional_packages import install_command

PROTOBUF, CONFLUENT_KAFKA = "google.protobuf", "confluent_kafka"


def check_modules(*modules: str) -> None:
    """Check that modules of the ``topology`` extra can be imported in this process.

    Args:
        modules: ``PROTOBUF``, ``CONFLUENT_KAFKA``, or both.

    Raises:
        ConfigurationError: a module cannot be imported.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigurationError(
                f"StreamsApp requires {module} on the driver and all workers, but {sys.executable!r} on "
                f"host {socket.gethostname()!r} cannot import it: {error}; install the extra 'topology' there "
                f"with `{install_command('topology', python=sys.executable)}`"
            ) from error
