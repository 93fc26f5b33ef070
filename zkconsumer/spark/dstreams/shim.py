"""Runs unmodified scripts that contain ``from pyspark.streaming.kafka import KafkaUtils``.

The command is ``python -m zkconsumer.spark.shim SCRIPT``. A program that is started in another way must call
``install()`` before it imports ``pyspark.streaming.kafka``.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import pyspark.streaming
from pyspark import SparkContext
from pyspark.streaming import StreamingContext

from zkconsumer.signals import handle_end_signals
from zkconsumer.spark.dstreams import kafka_utils
from zkconsumer.spark.dstreams.clients import clients

_USAGE = "usage: python -m zkconsumer.spark.shim SCRIPT [ARGUMENT ...]"

_HELP = f"""\
{_USAGE}

Run a script for Spark 1 or 2 that imports KafkaUtils from pyspark.streaming.kafka, which Spark 3 removed. Ctrl-C,
SIGTERM and SIGHUP stop the script and its contexts, and the streams leave their groups; the exit code is 128 plus the
number of the signal. SIGINT is blocked: a handler that the script installs is not called, and processes that it starts
ignore Ctrl-C unless they unblock the signal. A script that installs a handler for SIGTERM or SIGHUP must stop its
contexts itself."""

#: Maximum seconds to wait for the contexts to stop after a signal, and for the streams to leave their groups.
_STOP_TIMEOUT_S = 30.0
_CLOSE_TIMEOUT_S = 10.0

#: Numbers of the signals that arrived.
_received: list[int] = []


def install() -> None:
    """Make ``kafka_utils`` importable as ``pyspark.streaming.kafka``, its name in Spark 1 and 2."""
    sys.modules["pyspark.streaming.kafka"] = kafka_utils
    pyspark.streaming.kafka = kafka_utils


def main() -> None:
    """Run the script given on the command line in the same way as ``python SCRIPT``."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["-h"], ["--help"]):
        sys.stdout.write(f"{_HELP}\n")
        return
    if not arguments or not Path(arguments[0]).is_file():
        problem = f"shim: script {arguments[0]!r} does not exist" if arguments else "shim: a script is required"
        sys.stderr.write(f"{_USAGE}\n{problem}\n")
        sys.exit(2)
    _block_ctrl_c()
    install()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's default is the first python3 on PATH
    stopper = _stop_on_signal()
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    finally:
        if _received:
            stopper.join()  # the stopper thread ends the process


def _block_ctrl_c() -> None:
    """Block SIGINT in all threads.

    An exception in the main thread would interrupt py4j in the middle of a call, and Spark would log an error for each
    job. Therefore, one thread waits for the signal, and no handler is called, neither Spark's nor the script's. The
    program is restarted with the signal blocked, because modules that are already imported have started threads.
    """
    if signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}):
        os.execv(sys.executable, sys.orig_argv)


def _stop_on_signal() -> threading.Thread:
    """Start a thread that waits for a signal, stops the script's contexts without error logs, and ends the process.

    The handlers of SIGTERM and SIGHUP send SIGINT to this thread. SIGTERM and SIGHUP are not blocked, because the
    processes that the script starts would inherit the signal mask, and could not be terminated.
    """
    thread = threading.Thread(target=_wait_for_signal, name="zkconsumer-shim-signal", daemon=True)
    thread.start()
    process_id = os.getpid()

    def forward(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != process_id:  # a process that the script forked
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        _received.append(number)
        signal.pthread_kill(thread.ident or 0, signal.SIGINT)

    handle_end_signals(forward)
    return thread


def _wait_for_signal() -> None:
    _received.append(signal.sigwait({signal.SIGINT}))
    for stop, timeout_s in ((_stop_contexts, _STOP_TIMEOUT_S), (clients.close_all, _CLOSE_TIMEOUT_S)):
        stopping = threading.Thread(target=stop, name="zkconsumer-shim-stop", daemon=True)
        stopping.start()
        stopping.join(timeout_s)
    with contextlib.suppress(OSError):  # the process that reads the output may have exited
        sys.stdout.flush()
    # A normal exit would let the main thread print errors from calls to the stopped context.
    os._exit(128 + _received[0])


def _stop_contexts() -> None:
    """Stop the contexts, and ignore errors: if a terminal also sent the signal to the JVM, the JVM stops them."""
    with contextlib.suppress(Exception):
        _stop_spark()


def _stop_spark() -> None:
    spark = SparkContext._active_spark_context
    if getattr(spark, "_jsc", None) is None:  # no context, or one that is starting
        return
    spark.setLogLevel("OFF")  # Spark logs an error for each job and task that the stop interrupts
    streaming = StreamingContext.getActive()
    if streaming is not None:
        streaming.stop(stopSparkContext=False, stopGraceFully=False)
    spark.stop()


if __name__ == "__main__":
    main()
