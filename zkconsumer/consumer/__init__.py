"""The plain consumer: ``ZookeeperConsumerConnector`` and its streams.

It runs in the process of the application. ``ConsumerRuntime`` connects a group member (``rebalance``) with fetcher
threads (``fetcher``), and application threads read messages or Arrow batches from ``KafkaStream``. What a stream shares
with the member's thread is in ``StreamPositions``. Applications use the names that ``zkconsumer`` exports.
"""
