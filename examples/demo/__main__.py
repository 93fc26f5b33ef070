"""``make demo``: a Spark query and a plain Python process share a consumer group, under load.

The demo starts ZooKeeper and two brokers, produces numbered records, and reads them with a Spark query. Then a plain
Python process joins the group, and leaves it again, while a steady load continues. At the end, the demo checks that
each record was read exactly once. It takes about 90 seconds; the first run takes up to four minutes, because it
downloads the servers.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C exits at once, because there is nothing to clean up yet

import contextlib  # noqa: E402
import os  # noqa: E402
import shutil  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

import psutil  # noqa: E402
from rich.markup import escape  # noqa: E402

from examples.demo.ctrl_c import CtrlC, ignore_signals  # noqa: E402
from examples.demo.phases import Demo  # noqa: E402
from examples.demo.screen import Screen  # noqa: E402
from zkconsumer.devcluster import DevCluster  # noqa: E402


def clean_up(cluster: DevCluster, folder: Path) -> None:
    """Kill all child processes, and delete ``folder``. If a call is interrupted, the function can be called again."""
    ignore_signals()
    children = psutil.Process().children(recursive=True)  # Spark, its workers, and the plain process
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=20)
    cluster.stop()
    shutil.rmtree(folder, ignore_errors=True)


def screen_only_for_demo(log: Path) -> Screen:
    """Redirect the output of this process and its child processes to a log file, and return the screen."""
    screen = Screen(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    return screen


def main() -> int:
    """Run the demo, and return the exit code."""
    ignore_signals()  # until the clean-up of the directory is guaranteed
    folder = Path(tempfile.mkdtemp(prefix="zkconsumer-demo-"))
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    log = folder.with_suffix(".log")
    screen = screen_only_for_demo(log)
    cluster, ctrl_c = DevCluster(brokers=2), CtrlC()
    try:
        try:
            ctrl_c.handle()
            is_ok = Demo(screen, cluster, folder, ctrl_c).run()
        finally:
            clean_up(cluster, folder)
    except (KeyboardInterrupt, Exception) as error:
        # PySpark can replace KeyboardInterrupt by an error of its own, because Ctrl-C ends Spark's JVM, too.
        if isinstance(error, KeyboardInterrupt) or ctrl_c.number is not None:
            clean_up(cluster, folder)  # Ctrl-C may have interrupted the first call
            screen.say("interrupted; all servers are stopped")
            log.unlink()
            return 128 + (ctrl_c.number or signal.SIGINT)
        sys.excepthook(type(error), error, error.__traceback__)
        screen.say(escape(f"The demo failed: {error}\nThe output of all programs is in {log}"))
        return 1
    log.unlink()
    return 0 if is_ok else 1


if __name__ == "__main__":
    code = main()
    os._exit(code)  # PySpark threads may still be waiting for the JVM
