"""Names that checkpoints contain, because Spark pickles the objects of DStreams."""

from __future__ import annotations

#: Names by module in the checkpoint of a ``StreamingContext`` with streams of ``KafkaUtils``. Objects and functions are
#: pickled by the path of their module. The nested functions that plan and read a batch are pickled as byte code, which
#: calls the functions and methods in this table with the arguments they had when the checkpoint was written.
PICKLED = {
    "zkconsumer.config.consumer_config": [
        "ConsumerConfig",
    ],
    "zkconsumer.message": [
        "TopicPartition",
    ],
    "zkconsumer.spark.dstreams.batches": [
        "ignore",
        "record_batch",
    ],
    "zkconsumer.spark.dstreams.follower": [
        "follow",
    ],
    "zkconsumer.spark.dstreams.kafka_utils": [
        "_kafka_rdd",
        "_rdd",
    ],
    "zkconsumer.spark.dstreams.ledger": [
        "Ledger",
    ],
    "zkconsumer.spark.dstreams.records": [
        "fetch",
    ],
    "zkconsumer.spark.dstreams.sources": [
        "DirectSource",
        "DirectSource.ranges_at",
        "DirectSource.tasks",
        "GroupSource",
        "GroupSource.ranges_at",
        "GroupSource.tasks",
    ],
    "zkconsumer.spark.dstreams.values": [
        "KafkaMessageAndMetadata",
        "KafkaMessageAndMetadata._set_key_decoder",
        "KafkaMessageAndMetadata._set_value_decoder",
        "OffsetRange",
        "utf8_decoder",
    ],
}
