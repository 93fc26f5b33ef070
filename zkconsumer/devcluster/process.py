"""A server as a child process that terminates with its parent.

The parent holds the write end of a pipe, and a watcher process reads from it. When the parent terminates for any
reason, the pipe is closed and the watcher kills the child. When the child terminates first, the parent writes a line to
the pipe, and the watcher exits. This works on all POSIX systems. Unlike Linux's parent death signal, it does not depend
on the thread that started the child.
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

# The pipe is passed as standard input, because dash supports file descriptors only up to 9. exec keeps the shell's
# process id ($$), which is therefore the server's.
_WITH_LIFELINE = 'exec 3<&0 </dev/null; ( read line <&3 || kill -9 $$ 2>/dev/null ) & exec "$@" 3<&-'


class ServerFailedError(ZkConsumerError):
    """Raised when a server exits while starting, or is not ready in time. The message contains the end of its log."""


def free_port() -> int:
    """Return a free TCP port on the loopback interface."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def is_listening(port: int) -> bool:
    """Return whether a port on the loopback interface accepts connections."""
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex(("127.0.0.1", port)) == 0


class ServerProcess:
    """A server process. It can be restarted with the same port and data.

    Args:
        name: server name, used in messages and log file names.
        command: command line of the server.
        folder: working directory, which also contains the log files.
        ready: function that returns whether the server is ready; it is called repeatedly.
        start_timeout: maximum seconds to wait until the server is ready.
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
        """Process id, or None if the server is not running."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process exists; a paused process counts as running."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        self._close_lifeline()
        return False

    def start(self, *, wait: bool = True) -> None:
        """Start the server unless it is running, and wait until it is ready.

        Args:
            wait: whether to wait; if false, call ``wait_until_ready`` later. If the server was already running, the
                method does not wait.

        Raises:
            ServerFailedError: the server exited while starting, or was not ready in time.
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
                    start_new_session=True,  # so that Ctrl-C reaches only the parent, which stops the server
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
        """Wait until the server is ready; see ``start``."""
        deadline = time.monotonic() + self._start_timeout
        while not self._ready():
            if not self.is_running:
                code = self._process.returncode if self._process else None
                raise ServerFailedError(f"{self.name} exited with code {code} while starting; {self.log_end()}")
            if time.monotonic() > deadline:
                text = self.log_end()
                self.kill()
                raise ServerFailedError(f"{self.name} was not ready within {self._start_timeout:.0f} s; {text}")
            time.sleep(0.05)

    def stop(self, timeout: float = 20.0) -> None:
        """Terminate the server (SIGTERM), and kill it if it is still running after ``timeout`` seconds."""
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
        """Kill the server (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._close_lifeline()

    def pause(self) -> None:
        """Pause the server (SIGSTOP): its connections stay open, but it does not respond. Wait until it has stopped."""
        self._signal(signal.SIGSTOP)
        if (pid := self.pid) is not None and hasattr(os, "waitid"):  # macOS has it since Python 3.13
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Resume a paused server (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop and start the server."""
        self.stop()
        self.start()

    def log_end(self, lines: int = 15) -> str:
        """Return the last log and output lines, for error messages."""
        written = [path for path in (self.log, self.log.with_suffix(".out")) if path.exists()]
        parts = ["\n".join(path.read_text(errors="replace").splitlines()[-lines:]) for path in written]
        return f"last lines of {self.log}:\n" + "\n".join(parts)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _close_lifeline(self) -> None:
        """Stop the watcher, so that it cannot kill another process that reuses the server's process id."""
        if self._lifeline is not None:
            try:
                os.write(self._lifeline, b"\n")
            except BrokenPipeError:
                pass  # the watcher was killed
            os.close(self._lifeline)
            self._lifeline = None
