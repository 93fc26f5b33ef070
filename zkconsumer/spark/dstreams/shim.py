"""Runs old scripts that contain ``from pyspark.streaming.kafka import KafkaUtils``, without changes to them.

The command is ``python -m zkconsumer.spark.shim SCRIPT``. A program that is started in another way must call
``install()`` before this import.
"""

from __future__ import annotations

import os
import runpy
import sys

import pyspark.streaming

from zkconsumer.spark.dstreams import kafka_utils


def install() -> None:
    """Make ``kafka_utils`` importable as ``pyspark.streaming.kafka``, its name in Spark 1 and 2."""
    sys.modules["pyspark.streaming.kafka"] = kafka_utils
    pyspark.streaming.kafka = kafka_utils


def main() -> None:
    """Run the script of the command line in the same way as ``python SCRIPT``."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m zkconsumer.spark.shim SCRIPT [ARGUMENT ...]")
    install()
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
