"""Which brokers, topics and partitions exist, according to ZooKeeper or to the brokers.

It runs in the process of a consumer, in Spark's planning process and in the tools; each ``Cluster`` is used by one
thread.
"""
