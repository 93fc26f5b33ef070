"""Public path of the module ``zkconsumer.spark.dstreams.kafka_utils``."""

from zkconsumer.spark.dstreams.kafka_utils import (
    Broker,
    KafkaDStream,
    KafkaMessageAndMetadata,
    KafkaRDD,
    KafkaTransformedDStream,
    KafkaUtils,
    OffsetRange,
    TopicAndPartition,
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
    "utf8_decoder",
]
