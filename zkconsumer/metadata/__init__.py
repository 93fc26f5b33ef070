"""Cluster metadata: the existing brokers, topics and partitions, as reported by ZooKeeper or by the brokers.

It runs in the consumer's process, in Spark's planning process and driver, and in the tools. It starts no threads; each
``Cluster`` is used by one thread, except for the methods that say otherwise. Other packages call
``factory.create_cluster``, use the result as ``base.Cluster``, and compare topic ids with ``topic_id``.
"""
