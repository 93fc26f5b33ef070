"""Apache Spark integration: the data source ``zkconsumer``, its metrics, and recommended settings.

::

    import zkconsumer.spark

    zkconsumer.spark.register(spark)
    stream = (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", "zk1:2181/kafka")
        .option("group.id", "orders")
        .option("subscribe", "orders")
        .load()
    )
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from zkconsumer.optional_packages import install_command, missing_package

if TYPE_CHECKING:
    from zkconsumer.spark.driver.lag import Lag, lag
    from zkconsumer.spark.driver.query_listener import QueryListener
    from zkconsumer.spark.executor.decoders import BatchDecoder, PlannedRange, RecordDecoder
    from zkconsumer.spark.session import recommended_conf, register
    from zkconsumer.spark.source import ZkConsumerDataSource
    from zkconsumer.spark.streams.app import StreamsApp
    from zkconsumer.spark.streams.changes import AllowedChange
    from zkconsumer.spark.streams.output import ProcessingGuarantee
    from zkconsumer.spark.streams.settings import QuerySettings
    from zkconsumer.spark.streams.supervisor import ExceptionResponse

__all__ = [
    "AllowedChange",
    "BatchDecoder",
    "ExceptionResponse",
    "Lag",
    "PlannedRange",
    "ProcessingGuarantee",
    "QueryListener",
    "QuerySettings",
    "RecordDecoder",
    "StreamsApp",
    "ZkConsumerDataSource",
    "lag",
    "recommended_conf",
    "register",
]

#: Module of each exported name. A module is imported when one of its exported names is first used, because tasks import
#: this package and need few of its modules.
_MODULES = {
    "AllowedChange": "streams.changes",
    "BatchDecoder": "executor.decoders",
    "ExceptionResponse": "streams.supervisor",
    "Lag": "driver.lag",
    "PlannedRange": "executor.decoders",
    "ProcessingGuarantee": "streams.output",
    "QueryListener": "driver.query_listener",
    "QuerySettings": "streams.settings",
    "RecordDecoder": "executor.decoders",
    "StreamsApp": "streams.app",
    "ZkConsumerDataSource": "source",
    "lag": "driver.lag",
    "recommended_conf": "session",
    "register": "session",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        package, _, module = (error.name or "").partition(".")
        if package != "pyspark":
            raise
        user = f"{__name__}.{name}"
        if not module:
            raise missing_package("spark", package, user) from None
        message = (
            f"{user} requires Spark 4.0 or later, but an older pyspark is installed; run `{install_command('spark')}`"
        )
        raise ModuleNotFoundError(message, name=error.name) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
