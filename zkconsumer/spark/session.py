"""Registers the data source with a Spark session, and recommends session settings."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from zkconsumer.argument_checks import check_attribute
from zkconsumer.log import get_logger
from zkconsumer.spark.compat import CHECKPOINT_PACKAGE, LATEST_TESTED, VERSION
from zkconsumer.spark.driver.query_listener import QueryListener
from zkconsumer.spark.source import ZkConsumerDataSource

_listeners: list[QueryListener] = []


def register(spark: Any) -> QueryListener | None:
    """Register the data source ``zkconsumer`` with a Spark session, and start a listener for its queries.

    Returns:
        The session's listener, which commits offsets and provides query metrics. None with Spark Connect, because the
        driver is not accessible.

    Raises:
        ConfigurationError: ``spark`` is not a SparkSession.
    """
    check_attribute("spark", spark, "readStream", "a SparkSession")
    _check_version(VERSION)
    if not hasattr(spark, "_jsparkSession"):
        spark.dataSource.register(ZkConsumerDataSource)
        return None
    context = spark.sparkContext
    if context.master.startswith("local"):  # in a cluster, each machine can have a different Python at this path
        _check_worker_python(context.pythonExec)
    # The planning process has no SparkContext, so it receives these settings as attributes of a new class, which is
    # pickled by value.
    conf = context.getConf()
    driver = conf.get("spark.driver.host"), conf.get("spark.driver.bindAddress")
    listener = _listener_of(spark)
    attributes = {"cores": int(context.defaultParallelism), "driver": driver, "link": listener.link}
    source = type("ZkConsumerDataSource", (ZkConsumerDataSource,), attributes)
    spark.dataSource.register(source)
    return listener


def _listener_of(spark: Any) -> QueryListener:
    """Return the listener of a session; start one if there is none, or if it was closed."""
    _listeners[:] = [listener for listener in _listeners if listener.is_open]
    for listener in _listeners:
        if listener.observes(spark):
            return listener
    listener = QueryListener(spark)
    listener.start()
    _listeners.append(listener)
    return listener


def _check_version(version: tuple[int, ...]) -> None:
    """Log a warning if Spark is later than the latest version with which this release was tested."""
    if version > LATEST_TESTED:
        installed, tested = (".".join(map(str, one)) for one in (version, LATEST_TESTED))
        get_logger("zkconsumer.spark").warning(
            "spark_version_not_tested",
            reason=f"Spark {installed} is installed; this release was tested with versions up to {tested}",
            remedy="check whether a later release of zkconsumer was tested with this version",
        )


def _check_worker_python(executable: str) -> None:
    """Log a warning if Spark's workers use a different Python than the driver: it may not have zkconsumer."""
    found = shutil.which(executable)
    if "PYSPARK_PYTHON" in os.environ or (found and Path(found).parent == Path(sys.executable).parent):
        return
    get_logger("zkconsumer.spark").warning(
        "worker_python_differs",
        executable=found or executable,
        remedy=f"set PYSPARK_PYTHON to {sys.executable} before the Spark session is created",
    )


def recommended_conf() -> dict[str, Any]:
    """Return recommended Spark session settings, which save about 150 ms per batch in total.

    - Unix domain sockets to the Python workers save about 40 ms per task. If the path of Java's temporary directory has
      nearly 100 characters, set ``spark.python.unix.domain.socket.dir`` to a shorter path. With these
      sockets, pyspark 4.3 prints a harmless traceback (BrokenPipeError in pyspark/daemon.py) for each idle worker that
      it closes.
    - Checkpoints without checksum files have half as many files, but a corrupt checkpoint is detected later.
    - Writing checkpoints through the ``FileSystem`` interface saves about 130 ms. Its rename is not atomic, which is
      safe for one driver on a local or POSIX file system, and unsafe for object stores.
    """
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": (
            f"{CHECKPOINT_PACKAGE}.FileSystemBasedCheckpointFileManager"
        ),
    }
