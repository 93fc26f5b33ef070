"""Requests to brokers: connections, metadata, leaders and offsets. Knows no ZooKeeper.

It runs in each process that reads from Kafka: consumers, Spark's planning process and tasks, and the tools. It starts
no threads; each object is used by one thread, and any thread may close it. Other packages create ``Connecting`` and
pass it to ``LeaderLookup`` and ``LogOffsets``, or create a channel with it and send the requests of ``protocol``.
"""

import warnings

with warnings.catch_warnings():  # kafka-python loads its schemas with a function that Python has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401
