"""Test an application against real servers: ``pytest examples/test_with_cluster.py``.

The fixture ``zkconsumer_cluster`` is available in every project that has zkconsumer installed. It starts ZooKeeper and
two brokers once per session. Each test uses its own topic and group.
"""

import itertools

from zkconsumer import ConsumerConfig, TopicPartition, create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import batch


def totals(config: ConsumerConfig, topic: str, count: int) -> int:
    """Return the sum of the numbers in the first ``count`` messages. This is the application under test."""
    with create_consumer(config) as consumer:
        stream = consumer.stream(topic, value_decoder=int)
        return sum(message.value or 0 for message in itertools.islice(stream, count))


def test_totals(zkconsumer_cluster: DevCluster) -> None:
    topic = zkconsumer_cluster.create_topic("test-totals", 2)
    for partition in range(2):
        zkconsumer_cluster.admin.produce(TopicPartition(topic, partition), batch([b"1", b"2", b"3"]))
    properties = {
        **zkconsumer_cluster.consumer_properties,
        "group.id": "test-totals",
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": 30_000,
    }

    assert totals(ConsumerConfig.from_dict(properties), topic, 6) == 12
