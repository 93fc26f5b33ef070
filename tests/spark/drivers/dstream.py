"""A Spark Streaming driver for tests that kill it: ``python drivers/dstream.py '{"folder": ...}'``.

Each batch of its two streams writes a line of JSON: the stream, the time, the number of records, and the ranges.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore", FutureWarning)


def main(settings: dict[str, Any]) -> None:
    """Run both streams until the process is killed."""
    from pyspark import SparkConf, SparkContext
    from pyspark.streaming import StreamingContext

    from zkconsumer.devcluster.java import java_home
    from zkconsumer.spark.kafka_utils import KafkaUtils

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    folder = Path(settings["folder"])

    def recorder(kind: str, seen: str) -> Any:
        def record(time: datetime, rdd: Any) -> None:
            ranges = [[r.partition, r.fromOffset, r.untilOffset] for r in rdd.offsetRanges()]
            with Path(seen).open("a") as file:
                file.write(json.dumps([kind, round(time.timestamp() * 1000), rdd.count(), ranges]) + "\n")

        return record

    def create() -> StreamingContext:
        conf = SparkConf().setMaster("local[2]").setAppName("dstreams")
        for key, value in {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "600m",
            "spark.local.dir": str(folder),
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
        }.items():
            conf.set(key, value)
        ssc = StreamingContext(SparkContext(conf=conf), 1)
        reset, seen = {"auto.offset.reset": "smallest"}, str(folder / "seen")
        group = KafkaUtils.createStream(
            ssc,
            settings["zookeeper"],
            settings["group"],
            {settings["topic"]: 1},
            {**reset, "zookeeper.session.timeout.ms": "3000"},
        )
        group.foreachRDD(recorder("group", seen))
        direct = KafkaUtils.createDirectStream(
            ssc, [settings["topic"]], {**reset, "metadata.broker.list": settings["brokers"]}
        )
        direct.foreachRDD(recorder("direct", seen))
        return ssc

    ssc = StreamingContext.getOrCreate(str(folder / "checkpoint"), create)
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
