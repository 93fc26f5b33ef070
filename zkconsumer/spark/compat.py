"""Differences between the supported versions of Spark, which are 4.0 and later."""

from __future__ import annotations

import importlib.util
import re
import sys
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

#: Major and minor version of the installed Spark. Vendors can append other parts.
VERSION = tuple(int(number) for number in re.findall(r"\d+", pyspark.__version__)[:2])

#: The latest minor version of Spark with which this release was tested.
LATEST_TESTED = (4, 3)

#: Whether Spark passes the start offset and a read limit to ``latestOffset``, and calls ``reportLatestOffset`` and
#: ``prepareForTriggerAvailableNow``. Spark 4.2 and later do.
HAS_ADMISSION_CONTROL = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None

#: Modules that Spark runs in its Python processes: to plan the batches of a streaming query, and to plan a batch read
#: with filters.
PLANNING_PROCESS = "pyspark.sql.streaming.python_streaming_source_runner"
FILTER_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"

#: Whether an application can register a source under the name of a source that Spark found in a module ``pyspark_*``.
#: Spark 4.0 rejects it (DATA_SOURCE_ALREADY_EXISTS); later versions log a warning.
CAN_REPLACE_FOUND_SOURCES = VERSION >= (4, 1)

#: Java package of the classes that write checkpoints.
CHECKPOINT_PACKAGE = "org.apache.spark.sql.execution.streaming" + (".checkpointing" if VERSION >= (4, 1) else "")


def is_process_of(module: str) -> bool:
    """Return whether Spark started this process to run a module, as the main module or in a daemon's child process."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return module in sys.modules or (spec is not None and spec.name == module)


def to_utc_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema for the columns of a DataFrame. Its timestamps are in UTC."""
    if VERSION >= (4, 2):
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # in UTC by default
