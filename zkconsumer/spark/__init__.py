"""Apache Spark: the data source ``zkconsumer`` and the settings that suit it.

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

import weakref
from typing import Any

from zkconsumer.spark.executor.decoders import BatchDecoder, RecordDecoder
from zkconsumer.spark.monitoring.lag import Lag, lag
from zkconsumer.spark.monitoring.listener import QueryListener
from zkconsumer.spark.source import ZkConsumerDataSource

__all__ = [
    "BatchDecoder",
    "Lag",
    "QueryListener",
    "RecordDecoder",
    "ZkConsumerDataSource",
    "lag",
    "recommended_conf",
    "register",
]


_listeners: weakref.WeakKeyDictionary[Any, QueryListener] = weakref.WeakKeyDictionary()


def register(spark: Any) -> QueryListener | None:
    """Make ``format("zkconsumer")`` known to a Spark session, and follow its queries.

    Returns:
        what follows them and has their metrics; None under Spark Connect, where the driver is out of reach.
    """
    if not hasattr(spark, "_jsparkSession"):
        spark.dataSource.register(ZkConsumerDataSource)
        return None
    context = spark.sparkContext
    # A class made here is pickled whole, and so carries these to the process that plans batches.
    conf = context.getConf()
    driver = conf.get("spark.driver.host"), conf.get("spark.driver.bindAddress")
    about = {"cores": int(context.defaultParallelism), "driver": driver}
    source = type("ZkConsumerDataSource", (ZkConsumerDataSource,), about)
    spark.dataSource.register(source)
    listener = _listeners.get(spark)
    if listener is None:
        listener = _listeners[spark] = QueryListener(spark)
        listener.start()
    return listener


def recommended_conf() -> dict[str, str]:
    """Return settings of a Spark session that are worth about 150 ms a batch together.

    - Unix sockets to the Python workers: about 40 ms less for each task; they cost nothing, but where Java's folder
      for temporary files has a path of nearly 100 characters, name a shorter one as
      ``spark.python.unix.domain.socket.dir``.
    - No checksum files beside the checkpoint's: half as many files; a damaged checkpoint is seen later.
    - Checkpoint files through the FileSystem interface: about 130 ms less; its rename checks and acts in two
      steps, which is fine for one driver on a local or POSIX file system, and not for object stores.
    """
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }
