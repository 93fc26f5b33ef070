"""Run schedules: ``python -m tests.simulation --seconds 60``, or one of them with ``--seed 7``."""

from __future__ import annotations

import os
import socket
import ssl  # before the sockets are replaced, because it has subclasses of them
import sys

if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a schedule
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
assert issubclass(ssl.SSLSocket, socket.socket)

from . import clock, sockets, threads  # noqa: E402, F401

threads.install()
sockets.install()

from . import command  # noqa: E402

code = command.main(sys.argv[1:])
sys.stdout.flush()
os._exit(code)  # the interpreter would wait for threads that are not its own
