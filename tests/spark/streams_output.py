"""The output topic of an application, as consumers with ``isolation.level=read_committed`` read it."""

from __future__ import annotations

from typing import NamedTuple

import confluent_kafka
from helpers.aliases import Cluster

from zkconsumer.spark.streams.output import SEQUENCE_HEADER


class OutputRecord(NamedTuple):
    """A record of the output.

    Attributes:
        key: its key.
        value: its value.
        timestamp_ms: its timestamp.
        task: the task that wrote it, in its header; empty without the header.
        sequence: its number in the output of the task, in the header; -1 without it.
    """

    key: bytes
    value: bytes
    timestamp_ms: int
    task: str
    sequence: int


class Output:
    """The records of a topic with one partition, as they are written.

    Args:
        cluster: the cluster.
        topic: name of the topic.

    Attributes:
        records: all records that were read.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        self.records: list[OutputRecord] = []

    def fetch(self) -> list[OutputRecord]:
        """Read what is new, and return all records so far."""
        while messages := self._consumer.consume(1_000, 0.2):
            self.records += [_convert(message) for message in messages if message.error() is None]
        return self.records

    def read(self) -> list[tuple[bytes, bytes]]:
        """Return the keys and values of all records so far."""
        return [record[:2] for record in self.fetch()]

    def has_all(self, count: int) -> bool:
        """Return whether there are ``count`` records."""
        return len(self.fetch()) >= count

    def has_value(self, value: bytes) -> bool:
        """Return whether there is a record with a value."""
        return value in [record.value for record in self.fetch()]

    def has_new(self, known: int) -> bool:
        """Return whether there is another record than the first ``known`` ones and their repetitions."""
        before = set(self.records[:known])
        return any(record not in before for record in self.fetch()[known:])

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def _convert(message: confluent_kafka.Message) -> OutputRecord:
    headers = dict(message.headers() or ())
    _, timestamp_ms = message.timestamp()
    _, task, number = (headers.get(SEQUENCE_HEADER) or b"::-1").decode().split(":")
    return OutputRecord(message.key(), message.value(), timestamp_ms, task, int(number))
