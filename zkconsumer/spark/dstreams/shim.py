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

import pyspark.streaming
from pyspark import SparkContext
from pyspark.streaming import StreamingContext

from zkconsumer.spark.dstreams import kafka_utils

_USAGE = "usage: python -m zkconsumer.spark.shim SCRIPT [ARGUMENT ...]"

_HELP = f"""\
{_USAGE}

Run a script for Spark 1 or 2 that imports KafkaUtils from pyspark.streaming.kafka, which Spark 3 removed. Ctrl-C stops
the script and its contexts; the exit code is 130. SIGINT is blocked: a handler that the script installs is not called,
and processes that it starts ignore Ctrl-C unless they unblock the signal."""

#: Maximum seconds to wait for the contexts to stop after Ctrl-C.
_STOP_TIMEOUT_S = 30.0

#: Set when Ctrl-C is pressed.
_interrupted = threading.Event()


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
    stopper = _stop_on_ctrl_c()
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    finally:
        if _interrupted.is_set():
            stopper.join()  # the stopper thread ends the process


def _block_ctrl_c() -> None:
    """Block SIGINT in all threads.

    An exception in the main thread would interrupt py4j in the middle of a call, and Spark would log an error for each
    job. Therefore, one thread waits for the signal, and no handler is called, neither Spark's nor the script's. The
    program is restarted with the signal blocked, because modules that are already imported have started threads.
    """
    if signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}):
        os.execv(sys.executable, sys.orig_argv)


def _stop_on_ctrl_c() -> threading.Thread:
    """Start a thread that waits for Ctrl-C, stops the script's contexts without error logs, and ends the process."""
    thread = threading.Thread(target=_wait_for_ctrl_c, name="zkconsumer-shim-ctrl-c", daemon=True)
    thread.start()
    return thread


def _wait_for_ctrl_c() -> None:
    signal.sigwait({signal.SIGINT})
    _interrupted.set()
    stopping = threading.Thread(target=_stop_contexts, name="zkconsumer-shim-stop", daemon=True)
    stopping.start()
    stopping.join(_STOP_TIMEOUT_S)
    with contextlib.suppress(OSError):  # the process that reads the output may have exited
        sys.stdout.flush()
    # A normal exit would let the main thread print errors from calls to the stopped context.
    os._exit(128 + signal.SIGINT)


def _stop_contexts() -> None:
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
