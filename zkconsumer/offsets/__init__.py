"""A group's committed offsets, stored in ZooKeeper, in Kafka, or in both.

This package runs in the consumer's process, in Spark's planning process and driver, and in the tools. It starts no
threads; each object is used by one thread. A member calls ``factory.create_offsets`` and uses the result as
``base.Offsets``. A program that is not a member calls ``access.open_access``, which also opens the connections.
"""
