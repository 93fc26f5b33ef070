"""Produce and consume beside the broker: ``python produce_and_consume.py ZOOKEEPER BROKERS``."""

import itertools
import sys
import uuid

from kafka import KafkaProducer

from zkconsumer import ConsumerConfig, create_consumer
from zkconsumer.devcluster.admin import Admin
from zkconsumer.metadata.bootstrap import parse_bootstrap

COUNT = 1000


def main(zookeeper: str, brokers: str) -> None:
    """Write numbers to a new topic, and read them with a new group."""
    name = f"beside-{uuid.uuid4().hex[:8]}"
    with Admin(parse_bootstrap(brokers)) as admin:
        admin.create_topic(name, 4)
    producer = KafkaProducer(bootstrap_servers=brokers)
    for number in range(COUNT):
        producer.send(name, b"%d" % number, partition=number % 4)
    producer.close()
    properties = {
        "zookeeper.connect": zookeeper,
        "bootstrap.servers": brokers,
        "group.id": name,
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": "30000",
    }
    with create_consumer(ConsumerConfig.from_dict(properties)) as consumer:
        [stream] = consumer.create_message_streams({name: 1})[name]
        numbers = sorted(int(message.value) for message in itertools.islice(stream, COUNT))
    assert numbers == list(range(COUNT))
    print(f"{COUNT} records produced and consumed through {brokers}")


if __name__ == "__main__":
    main(*sys.argv[1:])
