"""A Spark session with two cores and a small heap, for the tests and for drivers in other processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zkconsumer.spark
from zkconsumer.devcluster.jars import resolve_sparks_source
from zkconsumer.devcluster.java import java_home
from zkconsumer.spark.compat import VERSION


def start_spark(folder: Path, master: str = "local[2]", conf: Mapping[str, str] | None = None) -> Any:
    """Return a session in which the source is registered; all its files are in ``folder``."""
    os.environ["JAVA_HOME"] = str(java_home())
    paths = [str(Path(__file__).parent / "on_path"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for the processes that Spark starts
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        **zkconsumer.spark.recommended_conf(),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder} -XX:-UsePerfData -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "600m",
        "spark.jars": ",".join(map(str, resolve_sparks_source(VERSION))),
        "spark.local.dir": str(folder),
        "spark.log.level": "ERROR",
        # Batches of a few records take less time to interpret than to compile.
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        **(conf or {}),
    }
    builder = SparkSession.builder.master(master).appName("zkconsumer-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    zkconsumer.spark.register(spark)
    return spark


def stop_spark(spark: Any) -> None:
    """Stop the session and its JVM, which would otherwise run until this process ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM exits when its standard input is closed
        gateway.proc.wait(20)
        SparkContext._gateway = SparkContext._jvm = None
