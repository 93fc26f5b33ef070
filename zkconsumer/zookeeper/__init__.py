"""ZooKeeper: sessions and leases, znode operations, and the paths and JSON of groups and brokers.

This package runs in the consumer's process, in Spark's planning process, and in the tools. kazoo uses one thread for
the connection and two for callbacks; the lease uses another thread. Other packages use ``ZooKeeperSession``, the types
and exceptions of its znode operations, and ``registry``. This package does not import ``broker``.
"""
