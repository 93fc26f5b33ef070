"""Print the rows of a table as JSON: ``python -m spark.drivers.read_table FORMAT TABLE``, with Spark's settings.

FORMAT is a format of ``spark.read``, with the path of the table, or ``table``, with its name. Each row is partition,
offset and value.
"""

from __future__ import annotations

import json
import sys


def main(kind: str, table: str) -> None:
    """Print the rows."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    frame = spark.table(table) if kind == "table" else spark.read.format(kind).load(table)
    print(json.dumps([list(row) for row in frame.select("partition", "offset", "value").collect()]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
