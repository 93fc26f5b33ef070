"""The consumer without Spark: ``ZookeeperConsumerConnector`` and its streams.

It runs in the application's process. ``ConsumerRuntime`` connects a group member (``rebalance``) with fetcher threads
(``fetcher``), and application threads read messages or Arrow batches from ``KafkaStream``. ``StreamPositions`` holds
the state that a stream shares with the member thread. Applications import these names from ``zkconsumer``.
"""
