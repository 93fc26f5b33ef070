"""Committed group offsets, whose metadata names the query and the batch that committed them.

This metadata, the marker, identifies a batch that Spark repeats, and lets a query detect another query with the same
application id. A query with a copy of the checkpoint has the same query id; it is detected when the batch numbers or
the offsets of a batch differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zkconsumer.errors import BrokerUnavailableError, StreamsError
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.offsets.metadata import FIRST_MARKER, format_marker, parse_marker
from zkconsumer.retry import retrying

if TYPE_CHECKING:
    from confluent_kafka import Consumer

#: Maximum seconds that a batch waits for brokers that do not respond. Source: Kafka 3.9 StreamsConfig
#: ``task.timeout.ms``.
TASK_TIMEOUT_S = 300.0
#: Maximum seconds for one request.
_ATTEMPT_S = 30.0


#: Digest of a task without output in a batch, if the guarantee is ``exactly_once_v2``.
NO_OUTPUT = 1
#: Offset of a partition before the first batch that contains a range of the partition.
NO_OFFSET = -1


class Marker(NamedTuple):
    """The batch that committed an offset.

    Attributes:
        query: query id, which the checkpoint contains.
        batch: batch number.
        digest: checksum of the task's output in the batch; ``NO_OUTPUT`` if there was none; 0 if it is unknown, because
            the guarantee was ``at_least_once``, or an earlier release computed the checksum differently.
    """

    query: str
    batch: int
    digest: int = 0

    def to_metadata(self) -> str:
        """Return the marker as metadata of a committed offset."""
        return format_marker(*self)

    @classmethod
    def from_metadata(cls, metadata: str | None) -> Marker | None:
        """Return the marker at the beginning of a committed offset's metadata; None if there is no marker."""
        found = parse_marker(metadata or "")
        return None if found is None else cls(*found)

    def is_same_batch(self, other: Marker | None) -> bool:
        """Return whether both markers identify the same batch of the same query."""
        return other is not None and self[:2] == other[:2]

    def has_other_output(self, other: Marker | None) -> bool:
        """Return whether both markers identify the same batch, whose output was different."""
        return (
            other is not None
            and self.is_same_batch(other)
            and 0 not in (self.digest, other.digest)
            and self.digest != other.digest
        )


def is_marked(metadata: str) -> bool:
    """Return whether the metadata of a committed offset is a marker, or ``FIRST_MARKER``."""
    return metadata == FIRST_MARKER or Marker.from_metadata(metadata) is not None


def check_marker(
    group: str, partition: TopicPartition, offset: int, marker: Marker, own: Marker, own_offset: int | None = None
) -> None:
    """Check that a committed offset was committed by this query, and not after its current batch.

    Args:
        group: consumer group, which is the application id.
        partition: partition of the offset.
        offset: the committed offset.
        marker: marker of the committed offset.
        own: marker of the current batch.
        own_offset: offset of the partition after the current batch; None if it is unknown.

    Raises:
        StreamsError: the offset was committed by another query, by a later batch, or with another offset.
    """
    what = f"group {group!r}: batch {marker.batch} committed offset {offset} for partition {partition}"
    if marker.query != own.query:
        raise StreamsError(
            f"{what} in query {marker.query}, so query {own.query} stops in batch {own.batch}; only one application "
            "may use an application id"
        )
    if marker.batch > own.batch:
        raise StreamsError(
            f"{what}, but this query is in batch {own.batch}: another application uses a copy of its checkpoint, or "
            "the checkpoint is outdated; use only the latest checkpoint, in one application"
        )
    if marker.batch == own.batch and own_offset is not None and offset != own_offset:
        raise StreamsError(
            f"{what}, but this query has offset {own_offset} after the same batch; only one application may use a "
            "checkpoint or a copy of it, and max_task_idle_ms and max_records_per_task must not change before an "
            "interrupted batch is repeated"
        )


def report_changed_output(what: str, batch: int, *, fails: bool) -> None:
    """Raise or log an error, because the output of a repeated batch differs from the committed output.

    The stores then contain results that were not written to the output topics.

    Args:
        what: the task, for the error message.
        batch: batch number.
        fails: ``QuerySettings.fails_on_changed_output``.
    """
    text = (
        f"{what}: the output of the repeated batch {batch} differs from the committed output; exactly_once_v2 requires "
        "deterministic processors"
    )
    if fails:
        raise StreamsError(text)
    get_logger("zkconsumer.spark").error("output_changed", error=text)


class MarkedOffsets:
    """Reads and commits the offsets of a group without members. Used by one thread.

    Connects when it is first used. After ``close``, the next use connects again.

    Args:
        client: librdkafka connection settings.
        group: consumer group, which is the application id.

    Attributes:
        client: see above. If the brokers change, it is replaced, and used for new connections.
    """

    def __init__(self, client: Mapping[str, Any], group: str) -> None:
        self.client = client
        self._group = group
        self._opened: Consumer | None = None

    @property
    def _consumer(self) -> Consumer:
        if self._opened is None:
            from confluent_kafka import Consumer

            fixed = {"group.id": self._group, "enable.auto.commit": False, "isolation.level": "read_committed"}
            self._opened = Consumer({**self.client, **fixed})
        return self._opened

    @property
    def group_metadata(self) -> Any:
        """The group metadata for ``Producer.send_offsets_to_transaction``."""
        return self._consumer.consumer_group_metadata()

    def find_marker(self, offsets: Mapping[TopicPartition, int], own: Marker) -> Marker | None:
        """Return the newest marker that the query committed for the partitions in ``offsets``, or None.

        Args:
            offsets: the offsets that the current batch commits; see ``complete``.
            own: marker of the current batch.

        Raises:
            StreamsError: another query committed an offset, a batch after the current one was committed, or the
                current batch was committed with another offset.
            BrokerUnavailableError: the brokers did not respond.
        """
        return max(self._find_markers(offsets, own).values(), default=None)

    def complete(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Replace each ``NO_OFFSET`` with the committed offset, so that it can be committed with a new marker.

        ``ApplicationGroup.check_markers`` ensures that each task has a committed offset. Partitions without one are
        omitted.

        Raises:
            StreamsError: there are no committed offsets.
            BrokerUnavailableError: the brokers did not respond.
        """
        if NO_OFFSET not in offsets.values():
            return offsets
        read = retrying(TASK_TIMEOUT_S)(self._read, list(offsets))
        found = {one: read[one][0] if offset == NO_OFFSET else offset for one, offset in offsets.items()}
        known = {partition: offset for partition, offset in found.items() if offset >= 0}
        if not known:
            raise StreamsError(
                f"group {self._group!r} has no committed offset for partitions {', '.join(map(str, sorted(offsets)))}: "
                "they were deleted while the application was running; restart the application"
            )
        return known

    def commit(
        self, offsets: Mapping[TopicPartition, int], marker: Marker, *, fails_on_changed_output: bool = False
    ) -> None:
        """Commit the offsets of tasks without output, with a marker; see ``complete`` for ``NO_OFFSET``.

        If the same batch already committed an offset with output, this is reported, and the offset is kept.

        Raises:
            StreamsError: another query committed an offset; see ``find_marker``. Or the output of a repeated batch
                differs; see ``report_changed_output``.
            BrokerUnavailableError: the brokers did not respond.
        """
        offsets = self.complete(offsets)
        found = self._find_markers(offsets, marker)
        changed = [partition for partition in sorted(offsets) if marker.has_other_output(found.get(partition))]
        for partition in changed:
            report_changed_output(f"task of partition {partition}", marker.batch, fails=fails_on_changed_output)
        unchanged = {partition: offset for partition, offset in offsets.items() if partition not in changed}
        if unchanged:
            retrying(TASK_TIMEOUT_S)(self._commit, unchanged, marker)

    def close(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _find_markers(self, offsets: Mapping[TopicPartition, int], own: Marker) -> dict[TopicPartition, Marker]:
        """Return the markers of the committed offsets by partition; see ``find_marker``."""
        found: dict[TopicPartition, Marker] = {}
        for partition, (offset, metadata) in retrying(TASK_TIMEOUT_S)(self._read, list(offsets)).items():
            marker = Marker.from_metadata(metadata)
            if marker is not None:
                expected = None if offsets[partition] == NO_OFFSET else offsets[partition]
                check_marker(self._group, partition, offset, marker, own, expected)
                found[partition] = marker
        return found

    def _commit(self, offsets: Mapping[TopicPartition, int], marker: Marker) -> None:
        from confluent_kafka import KafkaException

        try:
            for committed in self._consumer.commit(offsets=to_commits(offsets, marker), asynchronous=False):
                if committed.error is not None:
                    raise KafkaException(committed.error)
        except KafkaException as error:
            raise BrokerUnavailableError(
                f"could not commit offsets of group {self._group!r}: {error.args[0].str()}"
            ) from error

    def _read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, str | None]]:
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as Requested

        try:
            found = self._consumer.committed([Requested(*partition) for partition in partitions], timeout=_ATTEMPT_S)
        except KafkaException as error:
            raise BrokerUnavailableError(
                f"could not read the offsets of group {self._group!r}: {error.args[0].str()}"
            ) from error
        for one in found:
            if one.error is not None:
                place = TopicPartition(one.topic, one.partition)
                raise BrokerUnavailableError(
                    f"could not read the offset of group {self._group!r} for partition {place}: {one.error.str()}"
                )
        return {TopicPartition(one.topic, one.partition): (one.offset, _read_metadata(one)) for one in found}


def _read_metadata(committed: Any) -> str | None:
    """Return the metadata of a committed offset, even if additional bytes follow it; see ``parse_marker``."""
    try:
        return committed.metadata  # type: ignore[no-any-return]
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")


class MarkerCommitter:
    """Commits offsets after each batch, and reuses the connections of the previous batch. Used by one thread."""

    def __init__(self) -> None:
        self._offsets: MarkedOffsets | None = None
        self._settings: tuple[Mapping[str, Any], str] | None = None

    def commit(
        self,
        client: Mapping[str, Any],
        group: str,
        offsets: Mapping[TopicPartition, int],
        marker: Marker,
        *,
        fails_on_changed_output: bool = False,
    ) -> None:
        """Commit offsets with a marker; see ``MarkedOffsets.commit``.

        Args:
            client: librdkafka connection settings.
            group: consumer group, which is the application id.
            offsets: offsets to commit.
            marker: marker of the batch.
            fails_on_changed_output: see ``QuerySettings``.

        Raises:
            StreamsError: another query committed an offset, or the output of a repeated batch differs.
            BrokerUnavailableError: the brokers did not respond.
        """
        if self._offsets is None or self._settings != (client, group):
            self.close()
            self._offsets, self._settings = MarkedOffsets(client, group), (client, group)
        try:
            self._offsets.commit(offsets, marker, fails_on_changed_output=fails_on_changed_output)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections."""
        if self._offsets is not None:
            self._offsets.close()
            self._offsets = None


def to_commits(offsets: Mapping[TopicPartition, int], marker: Marker) -> list[Any]:
    """Return offsets with a marker, in the form that librdkafka commits."""
    from confluent_kafka import TopicPartition as Committed

    metadata = marker.to_metadata()
    return [Committed(*partition, offset, metadata) for partition, offset in sorted(offsets.items())]


class TopicEnds(NamedTuple):
    """End offsets of topics, and their ids.

    Attributes:
        offsets: end offset of each partition.
        topic_ids: id of each topic, to detect re-created topics; "" if it is unknown.
    """

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]

    def encode(self) -> str:
        """Return the end offsets as JSON."""
        return json.dumps({"offsets": encode_offsets(self.offsets), "ids": self.topic_ids}, sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> TopicEnds:
        """Parse the result of ``encode``."""
        content = json.loads(text)
        return cls(decode_offsets(content["offsets"]), content["ids"])


class GlobalTick(NamedTuple):
    """The part of a tick that tasks with global stores use, and save for batches without a tick.

    Attributes:
        ends: end offsets of the global store topics.
        brokers: brokers from which the topics can be read.
    """

    ends: TopicEnds
    brokers: Sequence[Endpoint]

    def encode(self) -> str:
        """Return the tick as JSON, with the keys of ``TopicEnds.encode``. Equal brokers result in equal JSON."""
        brokers = sorted([host, port] for host, port, *_ in self.brokers)
        return json.dumps({**json.loads(self.ends.encode()), "brokers": brokers}, sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> GlobalTick:
        """Parse the result of ``encode``."""
        return cls(TopicEnds.decode(text), [Endpoint(host, port) for host, port in json.loads(text)["brokers"]])


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets as JSON."""
    return json.dumps([[*partition, offset] for partition, offset in sorted(offsets.items())])


def decode_offsets(text: str) -> dict[TopicPartition, int]:
    """Parse the offsets that ``encode_offsets`` returned."""
    return {TopicPartition(topic, partition): offset for topic, partition, offset in json.loads(text)}
