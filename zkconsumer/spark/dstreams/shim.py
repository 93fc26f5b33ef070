"""Lets old scripts say ``from pyspark.streaming.kafka import KafkaUtils``: ``python -m zkconsumer.spark.shim SCRIPT``.

The script needs no edit. Where a program is started in another way, ``install()`` comes before that import.
"""

from __future__ import annotations

import os
import runpy
import sys

import pyspark.streaming

from zkconsumer.spark import kafka_utils


def install() -> None:
    """Put ``kafka_utils`` where Spark 1 and 2 had their module."""
    sys.modules["pyspark.streaming.kafka"] = kafka_utils
    pyspark.streaming.kafka = kafka_utils


def main() -> None:
    """Run a script as if it had been named to Python itself."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m zkconsumer.spark.shim SCRIPT [ARGUMENT ...]")
    install()
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
