"""Requests to brokers: connections, metadata, leaders and offsets. Independent of ZooKeeper.

Every process that reads from Kafka uses this package: consumers, Spark's planning process and tasks, and the tools. It
starts no threads. Each object is used by one thread; any thread may close it. Other packages create ``Connecting`` and
pass it to ``LeaderLookup`` and ``LogOffsets``, or use it to create a channel and send requests built by ``protocol``.
"""

import warnings

with warnings.catch_warnings():  # kafka-python loads its schemas with a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401
