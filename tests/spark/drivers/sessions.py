"""Creates and stops Spark sessions one after another, as notebooks and test suites do.

Usage: ``python -m spark.drivers.sessions FOLDER COUNT`` in ``tests``. It prints the names of the threads of the package
and the number of listening ports after each session, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from pathlib import Path

import psutil
from helpers.waiting import wait_for

import zkconsumer.spark

from ..session import start_spark, stop_spark


def threads() -> list[str]:
    """Return the names of the threads of the package."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("zkconsumer"))


def ports() -> int:
    """Return the number of ports on which this process listens."""
    return sum(connection.status == "LISTEN" for connection in psutil.Process().net_connections("inet"))


def main(folder: Path, count: int) -> None:
    """Register and stop the sessions."""
    found = []
    for number in range(count):
        spark = start_spark(folder, master="local[1]")
        first = zkconsumer.spark.register(spark)
        same = type(spark)(spark.sparkContext, spark._jsparkSession)  # as in foreachBatch
        assert first is zkconsumer.spark.register(same), "each session has one listener"
        assert first is not None
        first.close()
        assert zkconsumer.spark.register(spark) is not first, "a closed listener is replaced"
        assert threads()
        if number < count - 1:
            spark.stop()
        else:
            stop_spark(spark)
        with contextlib.suppress(AssertionError):  # the test compares the names
            wait_for(lambda: not threads(), 10)
        found.append([threads(), ports()])
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
