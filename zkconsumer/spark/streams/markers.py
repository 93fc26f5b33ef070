"""Committed offsets of the group, whose metadata names the query and the batch that committed them.

The metadata is the marker by which a batch that Spark repeats is recognized, and by which a query detects another one
with the same application id. A query with a copy of the checkpoint has the same id. It is detected when their batches
differ: by their numbers, or by the offsets of a batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zkconsumer.errors import BrokerUnavailableError, StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.retry import retrying

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_PREFIX = "zkconsumer "
_METADATA = re.compile(rf"{_PREFIX}(\S+) ([0-9]{{1,19}}) ([0-9a-f]{{8}})")
#: Maximum seconds of retries to read committed offsets, and maximum seconds of each attempt.
_TIMEOUT_S = 30.0


class Marker(NamedTuple):
    """The batch that has committed an offset.

    Attributes:
        query: id of the query, which the checkpoint contains.
        batch: number of the batch.
        digest: checksum of the output of the task in the batch; 0 without output.
    """

    query: str
    batch: int
    digest: int = 0

    def to_metadata(self) -> str:
        """Return the metadata of an offset."""
        return f"{_PREFIX}{self.query} {self.batch} {self.digest:08x}"

    @classmethod
    def from_metadata(cls, metadata: str | None) -> Marker | None:
        """Return the marker in the metadata of an offset, or None if it was committed by something else."""
        match = _METADATA.fullmatch((metadata or "").rstrip("\0"))  # the client stores the end of a string in C, too
        return None if match is None else cls(match[1], int(match[2]), int(match[3], 16))

    def is_same_batch(self, other: Marker | None) -> bool:
        """Return whether both markers are of the same batch of the same query."""
        return other is not None and self[:2] == other[:2]


class MarkedOffsets:
    """Reads and commits the offsets of a group without members. Used by one thread.

    Args:
        client: settings of librdkafka with which it connects.
        group: the consumer group, which is the application id.
    """

    def __init__(self, client: Mapping[str, Any], group: str) -> None:
        from confluent_kafka import Consumer

        self._group = group
        self._consumer: Consumer = Consumer(
            {
                **client,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )

    @property
    def group_metadata(self) -> Any:
        """What ``Producer.send_offsets_to_transaction`` needs of the group."""
        return self._consumer.consumer_group_metadata()

    def find_marker(self, offsets: Mapping[TopicPartition, int], own: Marker) -> Marker | None:
        """Return the newest marker of the query on any of the partitions of a task.

        Args:
            offsets: the offsets that the current batch commits.
            own: marker of the current batch.

        Raises:
            StreamsError: another query has committed an offset, or a batch after the current one was committed.
            BrokerUnavailableError: the brokers do not respond.
        """
        found: Marker | None = None
        for partition, (offset, metadata) in retrying(_TIMEOUT_S)(self._read, list(offsets)).items():
            marker = Marker.from_metadata(metadata)
            if marker is not None:
                self._check(partition, offset, marker, offsets[partition], own)
                found = marker if found is None else max(found, marker)
        return found

    def _check(self, partition: TopicPartition, offset: int, marker: Marker, own_offset: int, own: Marker) -> None:
        what = f"group {self._group!r}: batch {marker.batch} has committed offset {offset} of partition {partition}"
        if marker.query != own.query:
            raise StreamsError(
                f"{what} for query {marker.query}, so query {own.query} stops in its batch {own.batch}; only one "
                "application may use an application id"
            )
        if marker.batch > own.batch:
            raise StreamsError(
                f"{what}, but this query is in batch {own.batch}: another application uses a copy of its checkpoint, "
                "or the checkpoint is an older copy; stop the other application, and use the latest checkpoint"
            )
        if marker.batch == own.batch and offset != own_offset:
            raise StreamsError(
                f"{what}, but this query has offset {own_offset} after the same batch; only one application may use a "
                "checkpoint or a copy of it, and max_task_idle_ms and max_records_per_task must not change before an "
                "interrupted batch is repeated"
            )

    def commit(self, offsets: Mapping[TopicPartition, int], marker: Marker) -> None:
        """Commit offsets with a marker.

        Raises:
            StreamsError: another query has committed an offset; see ``find_marker``.
            BrokerUnavailableError: the brokers do not respond.
        """
        from confluent_kafka import KafkaException

        self.find_marker(offsets, marker)
        try:
            for committed in self._consumer.commit(offsets=to_commits(offsets, marker), asynchronous=False):
                if committed.error is not None:
                    raise KafkaException(committed.error)
        except KafkaException as error:
            raise BrokerUnavailableError(
                f"offsets of group {self._group!r} were not committed: {error.args[0].str()}"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, str | None]]:
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as Requested

        try:
            found = self._consumer.committed([Requested(*partition) for partition in partitions], timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise BrokerUnavailableError(
                f"offsets of group {self._group!r} were not read: {error.args[0].str()}"
            ) from error
        for one in found:
            if one.error is not None:
                place = TopicPartition(one.topic, one.partition)
                raise BrokerUnavailableError(
                    f"the offset of partition {place} of group {self._group!r} was not read: {one.error.str()}"
                )
        return {TopicPartition(one.topic, one.partition): (one.offset, one.metadata) for one in found}


class OffsetCommitter:
    """Commits offsets after each batch, and reuses the connections of the previous batch. Used by one thread."""

    def __init__(self) -> None:
        self._offsets: MarkedOffsets | None = None
        self._settings: tuple[Mapping[str, Any], str] | None = None

    def commit(
        self, client: Mapping[str, Any], group: str, offsets: Mapping[TopicPartition, int], marker: Marker
    ) -> None:
        """Commit offsets with a marker; see ``MarkedOffsets.commit``.

        Args:
            client: settings of librdkafka with which it connects.
            group: the consumer group, which is the application id.
            offsets: the offsets.
            marker: the batch.

        Raises:
            StreamsError: another query has committed an offset; see ``MarkedOffsets.find_marker``.
            BrokerUnavailableError: the brokers do not respond.
        """
        if self._offsets is None or self._settings != (client, group):
            self.close()
            self._offsets, self._settings = MarkedOffsets(client, group), (client, group)
        try:
            self._offsets.commit(offsets, marker)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections."""
        if self._offsets is not None:
            self._offsets.close()
            self._offsets = None


def to_commits(offsets: Mapping[TopicPartition, int], marker: Marker) -> list[Any]:
    """Return offsets as librdkafka commits them, with a marker."""
    from confluent_kafka import TopicPartition as Committed

    metadata = marker.to_metadata()
    return [Committed(*partition, offset, metadata) for partition, offset in sorted(offsets.items())]


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets as JSON."""
    return json.dumps([[*partition, offset] for partition, offset in sorted(offsets.items())])


def decode_offsets(text: str) -> dict[TopicPartition, int]:
    """Return the offsets of ``encode_offsets``."""
    return {TopicPartition(topic, partition): offset for topic, partition, offset in json.loads(text)}
