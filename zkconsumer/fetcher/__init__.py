"""Fetching: records of given partitions, from their leaders into queues, and from queues into columns or messages.

It runs in the process of a consumer and in Spark's tasks. ``ConsumerFetcherManager`` owns a thread that looks up
leaders, and threads for each broker that fill the queues; the reader's thread takes chunks and decodes them. Other
packages use the manager, ``PartitionTopicInfo``, the queues, ``FetchSettings``, and ``ArrowReader`` or
``read_messages``. This package imports neither ``zookeeper`` nor ``rebalance``.
"""
