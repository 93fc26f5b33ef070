"""Spark session of the applications that run on Spark."""

from __future__ import annotations

import os
import sys
from typing import Any

import zkconsumer.spark
from zkconsumer.devcluster.jars import resolve_sparks_source
from zkconsumer.devcluster.java import java_home
from zkconsumer.spark.compat import VERSION

#: JVM options recommended for applications that only run topologies: Spark's JVM mostly copies bytes, so the
#: optimizations of the C2 compiler are not worth their CPU time.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"


def create_session(folder: str) -> Any:
    """Return a local Spark session with two cores and Spark's own Kafka source; ``folder`` contains its files."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        **zkconsumer.spark.recommended_conf(),
        "spark.jars": ",".join(map(str, resolve_sparks_source(VERSION))),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder} {_JAVA_OPTIONS}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.local.dir": folder,
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
