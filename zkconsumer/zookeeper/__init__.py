"""ZooKeeper: a session and its lease, operations on znodes, and the paths and JSON of groups and brokers.

It runs where a member runs: in the process of a consumer, in Spark's planning process, and in the tools. kazoo has a
thread for the connection and one for callbacks; the lease has one of its own. Other packages use ``ZooKeeperSession``
and ``registry``. This package does not import ``broker``.
"""
