"""Public path of the module ``zkconsumer.spark.dstreams.kafka_utils``. Checkpoints contain this path."""

from zkconsumer.spark.dstreams.kafka_utils import (
    Broker,
    KafkaDStream,
    KafkaMessageAndMetadata,
    KafkaRDD,
    KafkaTransformedDStream,
    KafkaUtils,
    OffsetRange,
    TopicAndPartition,
    _kafka_rdd,
    _rdd,
    utf8_decoder,
)

__all__ = [
    "Broker",
    "KafkaDStream",
    "KafkaMessageAndMetadata",
    "KafkaRDD",
    "KafkaTransformedDStream",
    "KafkaUtils",
    "OffsetRange",
    "TopicAndPartition",
    "_kafka_rdd",
    "_rdd",
    "utf8_decoder",
]
