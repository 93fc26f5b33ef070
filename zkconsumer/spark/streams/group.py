"""The consumer group of an application, in ZooKeeper and in Kafka. It is checked before any change.

Only the application may use the group: live members would read the same partitions, and their committed offsets would
be lowered or deleted. The committed offsets must also match the checkpoint. If the checkpoint has no batches, the group
must not have offsets, because they show that the checkpoint was lost. Conversely, with ``exactly_once_v2``, the group
must have a marked offset for each task, because a batch that was committed without a marker would be written again. A
task that has not committed an offset yet has the marker ``FIRST_MARKER``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from zkconsumer.broker.protocol import CommittedOffset
from zkconsumer.errors import RetriableError, StreamsError, UnsupportedBrokerError, ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.log_ends import EARLIEST, LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.access import Access
from zkconsumer.offsets.metadata import FIRST_MARKER
from zkconsumer.retry import retrying
from zkconsumer.spark.streams.checkpoint_directory import QueryProgress
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.markers import Marker, check_marker, is_marked
from zkconsumer.spark.streams.plan import ApplicationPlan
from zkconsumer.zookeeper.registry import GroupPaths, parse_offset

#: Maximum seconds to wait for the group coordinator.
_COORDINATOR_TIMEOUT_S = 30.0
#: Topic that contains the committed offsets of all groups in Kafka.
_OFFSETS_TOPIC = "__consumer_offsets"

Found = TypeVar("Found")


class ApplicationGroup:
    """Checks the group of an application from the driver.

    Args:
        cluster: the Kafka cluster.
        access: connections to the cluster.
        commits_to_kafka: whether the application commits offsets to Kafka. If not, the group's state in Kafka is
            ignored if it cannot be read.
    """

    def __init__(self, cluster: ApplicationCluster, access: Access, *, commits_to_kafka: bool) -> None:
        self._cluster, self._access = cluster, access
        self._commits_to_kafka = commits_to_kafka
        self._name = cluster.config.group_id
        self._log = get_logger("zkconsumer.spark", group=self._name)

    def check_members(self) -> None:
        """Check that the group has no live members, in ZooKeeper and in Kafka.

        Raises:
            StreamsError: the group has members.
            RetriableError: ZooKeeper or the brokers did not respond.
        """
        for place, members in (
            ("ZooKeeper", self._list_zookeeper_members() if self._cluster.has_zookeeper else []),
            ("Kafka", self._read_kafka(self._list_kafka_members) or []),
        ):
            if members:
                raise StreamsError(
                    f"group {self._name!r} is used by consumers in {place}: {', '.join(members)}; stop them first, or "
                    "use another application_id"
                )

    def check_unused(self, place: str) -> None:
        """Check that the group has no committed offsets, in ZooKeeper and in Kafka.

        Args:
            place: description of the checkpoint, which has no batches, for the error message.

        Raises:
            StreamsError: the group has committed offsets.
            RetriableError: ZooKeeper or the brokers did not respond.
        """
        for found in self._describe_offsets():
            raise StreamsError(
                f"{place} has no batches, but group {self._name!r} has already committed {found}; restore the "
                "checkpoint, or call clean_up() to start over"
            )

    def check_empty(self, topics: Iterable[str], place: str) -> None:
        """Check that internal topics have no records.

        Args:
            topics: existing internal topics.
            place: description of the checkpoint, which has no batches, for the error message.

        Raises:
            StreamsError: a topic has records.
            RetriableError: ZooKeeper or the brokers did not respond.
        """
        numbers = self._access.cluster.partitions(sorted(topics))
        partitions = [TopicPartition(topic, number) for topic, of_topic in numbers.items() for number in of_topic]
        if not partitions:
            return
        logs = self._access.logs()
        starts, ends = (logs.offsets(partitions, time) for time in (EARLIEST, LATEST))
        for partition in sorted(partitions):
            if starts[partition] < ends[partition]:
                raise StreamsError(
                    f"{place} has no batches, but partition {partition} of an internal topic has records at "
                    f"offsets {starts[partition]} to {ends[partition] - 1}; restore the checkpoint, or call clean_up() "
                    "to start over"
                )

    def check_query(self, progress: QueryProgress) -> None:
        """Check that the query of the checkpoint committed the group's offsets in Kafka, and no later batch did.

        Args:
            progress: progress of the query, as stored in the checkpoint.

        Raises:
            StreamsError: an offset was committed by another query, or after the last batch in the checkpoint.
            RetriableError: the brokers did not respond.
        """
        own = Marker(progress.query, progress.planned)
        for partition, (offset, metadata) in sorted(self._read_committed().items()):
            marker = Marker.from_metadata(metadata)
            if marker is not None:
                check_marker(self._name, partition, offset, marker, own)

    def check_markers(
        self, place: str, progress: QueryProgress, plan: ApplicationPlan, marked: int, *, allows_lost: bool
    ) -> None:
        """Check that each task has a marked offset, and commit marked offsets for tasks without one.

        Args:
            place: description of the checkpoint, used in the error message.
            progress: progress of the query, as stored in the checkpoint.
            plan: the tasks of the application.
            marked: number of tasks that must have a marked offset; see ``StoredApplication.marked``.
            allows_lost: whether to continue without markers that would identify a repeated batch.

        Raises:
            StreamsError: markers were lost.
            RetriableError: the brokers did not respond.
        """
        known = {partition for partition, found in self._read_committed().items() if is_marked(found.metadata)}
        missing = [task for task in plan.tasks.values() if known.isdisjoint(plan.partitions_of(task))]
        lost = [task for task in missing if plan.order.index(task) < marked]
        if lost:
            tasks = ", ".join(task.task_id for task in lost)
            text = (
                f"group {self._name!r} has no committed offsets in Kafka for tasks {tasks}: they expired "
                "(offsets.retention.minutes) or were deleted"
            )
            if progress.is_interrupted and not allows_lost:
                raise StreamsError(
                    f"{text}. {place} contains the unfinished batch {progress.planned}, and it is unknown whether "
                    "its output was already written. To repeat the batch, which can write its output twice, use "
                    "StreamsApp(allow=[AllowedChange.MARKERS_LOST])"
                )
            self._log.warning("markers_lost", error=text)
        self._mark(plan, {partition for task in missing for partition in plan.partitions_of(task)}, progress.ends)

    def _mark(
        self, plan: ApplicationPlan, partitions: Collection[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Commit the next offsets of partitions with the marker ``FIRST_MARKER``."""
        if not partitions:
            return
        logs, latest = self._access.logs(), plan.latest_topics
        known = {partition: ends[partition] for partition in partitions if partition in ends}
        others = sorted(set(partitions) - known.keys())
        for time, chosen in (
            (EARLIEST, [one for one in others if one.topic not in latest]),
            (LATEST, [one for one in others if one.topic in latest]),
        ):
            known.update(logs.offsets(chosen, time) if chosen else {})
        commit = self._access.coordinator().commit_offsets
        for error in retrying(_COORDINATOR_TIMEOUT_S)(commit, known, dict.fromkeys(known, FIRST_MARKER)).values():
            raise error

    def _list_zookeeper_members(self) -> list[str]:
        znodes, paths = self._access.session.znodes, GroupPaths(self._name)
        owned = [
            f"owner of {topic}-{partition}"
            for topic in znodes.children(f"{paths.root}/owners") or ()
            for partition in znodes.children(paths.owners(topic)) or ()
        ]
        return [*(znodes.children(paths.ids) or ()), *owned]

    def _list_kafka_members(self) -> list[str]:
        # The first request to a new cluster creates the offsets topic.
        return retrying(_COORDINATOR_TIMEOUT_S)(self._access.coordinator().list_members)

    def _describe_offsets(self) -> Iterator[str]:
        """Yield a description of each committed offset, except those with the marker ``FIRST_MARKER``."""
        for partition, (offset, metadata) in sorted((self._read_kafka(self._read_committed) or {}).items()):
            if offset >= 0 and metadata != FIRST_MARKER:
                marker = Marker.from_metadata(metadata)
                owner = "" if marker is None else f" (query {marker.query}, batch {marker.batch})"
                yield f"offset {offset} for partition {partition}{owner}"
        if self._cluster.has_zookeeper:
            yield from self._describe_zookeeper_offsets()

    def _describe_zookeeper_offsets(self) -> Iterator[str]:
        znodes, root = self._access.session.znodes, f"{GroupPaths(self._name).root}/offsets"
        for topic in znodes.children(root) or ():
            for partition in znodes.children(f"{root}/{topic}") or ():
                path = f"{root}/{topic}/{partition}"
                node = znodes.get(path)
                try:
                    offset = parse_offset(path, None if node is None else node.data)
                except ZkConsumerError as error:
                    yield f"an offset: {error}"
                    continue
                if offset >= 0:
                    yield f"offset {offset} for partition {topic}-{partition} in ZooKeeper"

    def _read_kafka(self, read: Callable[[], Found]) -> Found | None:
        """Return the result of ``read``; None if the group's state in Kafka is unknown and not required."""
        if self._commits_to_kafka:
            return read()
        if _OFFSETS_TOPIC not in self._access.cluster.topics():  # ``read`` would create it
            return None
        try:
            return read()
        except (RetriableError, UnsupportedBrokerError) as error:
            self._log.warning("kafka_group_not_checked", error=str(error))
            return None

    def _read_committed(self) -> dict[TopicPartition, CommittedOffset]:
        return retrying(_COORDINATOR_TIMEOUT_S)(self._access.coordinator().fetch_offsets_and_metadata, None)
