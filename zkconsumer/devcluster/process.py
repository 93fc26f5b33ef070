"""A server as a child process that never outlives its parent.

The child holds the reading end of a pipe whose writing end only the parent has. When the parent ends, in
whatever way, the pipe closes and a watcher beside the child kills it; a line in the pipe tells the watcher
that the child is gone. That works on every POSIX system, and unlike Linux's parent-death signal it does not
depend on the thread that started the child.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from zkconsumer.errors import ZkConsumerError

# The pipe comes as standard input, whatever its number here: dash knows descriptors up to 9 only. $$ stays the
# shell's own process id after exec, so it is the server's.
_WITH_LIFELINE = 'exec 3<&0 </dev/null; ( read line <&3 || kill -9 $$ 2>/dev/null ) & exec "$@" 3<&-'


class ServerFailedError(ZkConsumerError):
    """A server ended by itself or did not come up in time; the end of its log is in the text."""


def free_port() -> int:
    """Return a TCP port of the loopback interface that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def is_listening(port: int) -> bool:
    """Whether something accepts connections there."""
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex(("127.0.0.1", port)) == 0


class ServerProcess:
    """One server: started, stopped, killed, paused, and started again on the same port and data.

    Args:
        name: for messages and the name of its log.
        ready: tells whether the server serves; asked until it does.
    """

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, ready: Callable[[], bool], start_timeout: float = 60.0
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = list(command)
        self._folder = folder
        self._ready = ready
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None

    @property
    def pid(self) -> int | None:
        """The process id while the server runs."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process exists; a paused one does."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        self._close_lifeline()
        return False

    def start(self, *, wait: bool = True) -> None:
        """Start the server and wait until it serves.

        Raises:
            ServerFailedError: it ended or was not ready in time.
        """
        if self.is_running:
            return
        self._close_lifeline()
        reading, writing = os.pipe()
        try:
            with self.log.with_suffix(".out").open("ab") as out:
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _WITH_LIFELINE, "sh", *self._command],
                    cwd=self._folder,
                    stdin=reading,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,  # Ctrl-C in a terminal is for the parent, which stops us in order
                )
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        self._lifeline = writing
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the server serves; see ``start``."""
        deadline = time.monotonic() + self._start_timeout
        while not self._ready():
            if not self.is_running:
                code = self._process.returncode if self._process else None
                raise ServerFailedError(f"{self.name} ended with code {code} while starting; {self.log_end()}")
            if time.monotonic() > deadline:
                text = self.log_end()
                self.kill()
                raise ServerFailedError(f"{self.name} was not ready within {self._start_timeout:.0f} s; {text}")
            time.sleep(0.05)

    def stop(self, timeout: float = 20.0) -> None:
        """End the server in order (SIGTERM), or by force when that takes too long."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close_lifeline()

    def kill(self) -> None:
        """End the server at once (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._close_lifeline()

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): its connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen server go on."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop in order and start again."""
        self.stop()
        self.start()

    def log_end(self, lines: int = 15) -> str:
        """Return the end of what the server wrote, for error messages."""
        written = [path for path in (self.log, self.log.with_suffix(".out")) if path.exists()]
        parts = ["\n".join(path.read_text(errors="replace").splitlines()[-lines:]) for path in written]
        return f"the end of {self.log}:\n" + "\n".join(parts)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _close_lifeline(self) -> None:
        """Dismiss the watcher; the server has ended, and its process id may be another's by now."""
        if self._lifeline is not None:
            try:
                os.write(self._lifeline, b"\n")
            except BrokenPipeError:
                pass  # the watcher was killed, too
            os.close(self._lifeline)
            self._lifeline = None
