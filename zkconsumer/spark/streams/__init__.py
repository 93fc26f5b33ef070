"""Topologies on Spark: ``StreamsApp`` and its query run in the driver, and the tasks run in a stateful operator.

Workers import neither ``app`` nor ``query``.
"""

from zkconsumer.optional_packages import check_package

check_package("spark", "pyspark", __name__)

import pyspark  # noqa: E402

from zkconsumer.spark.compat import HAS_ADMISSION_CONTROL  # noqa: E402

if not HAS_ADMISSION_CONTROL:
    raise ImportError(
        "StreamsApp requires Spark 4.2 or later, whose sources can define read limits in Python, but pyspark "
        f"{pyspark.__version__} is installed; use the DataFrame API, or install pyspark 4.2 or later"
    )
