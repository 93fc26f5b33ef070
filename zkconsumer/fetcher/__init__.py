"""Fetches the records of given partitions into queues, and decodes queued records into columns or messages.

It runs in consumer processes and in Spark tasks. ``ConsumerFetcherManager`` owns a leader finder thread and the fetcher
threads that fill the queues. The reader thread takes chunks from the queues and decodes them. Other packages use the
manager, ``PartitionTopicInfo``, the queues, ``FetchSettings``, and ``ArrowReader`` or ``read_messages``. This package
imports neither ``zookeeper`` nor ``rebalance``.
"""
