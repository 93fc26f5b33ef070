"""The tasks of an application, and their keys in Spark's operator."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from zkconsumer.errors import StreamsError
from zkconsumer.log_ends import EARLIEST, LATEST
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.spark.streams.fetching import RecordFetcher
from zkconsumer.spark.streams.internal_topics import format_creation_command
from zkconsumer.spark.streams.packing import choose_keys
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.resolved import ResolvedTopology
from zkconsumer.topology.subtopology import Subtopology, name_internal_topic

if TYPE_CHECKING:  # tasks of applications without global stores do not fetch
    from zkconsumer.spark.executor.fetch_task import FetchTask

#: Page size in Spark's state, in bytes, unless ``ApplicationConfig.page_bytes`` is set. Each page access calls the JVM.
_PAGE_BYTES = 65_536


class TaskNumber(NamedTuple):
    """Sub-topology number and partition number of a task."""

    subtopology: int
    partition: int

    @property
    def task_id(self) -> str:
        """The task id, such as ``0_3``."""
        return f"{self.subtopology}_{self.partition}"


@dataclass(frozen=True)
class GlobalPlan:
    """The global stores of an application; pickled and sent to the workers.

    Attributes:
        config: application settings.
        subtopologies: the sub-topologies of global stores.
        fetch: template for the tasks that fetch the global store topics; it has no ranges.
    """

    config: ApplicationConfig
    subtopologies: tuple[Subtopology, ...]
    fetch: FetchTask

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions of the global store topics."""
        return [
            TopicPartition(topic, number)
            for one in self.subtopologies
            for topic in sorted(one.source_topics)
            for number in range(one.partition_counts[topic])
        ]

    def with_brokers(self, brokers: Sequence[Endpoint]) -> GlobalPlan:
        """Return the plan with brokers that are used in addition to those known when the query started."""
        return replace(self, fetch=self.fetch.with_brokers(brokers))

    @property
    def file_name(self) -> str:
        """Name of the SQLite file, which depends on the store declarations."""
        text = json.dumps([self.config.application_id, *(one.fingerprint for one in self.subtopologies)])
        return f"zkconsumer-global-{hashlib.sha256(text.encode()).hexdigest()[:16]}.db"


@dataclass(frozen=True, kw_only=True)
class ApplicationPlan:
    """All tasks of an application; pickled and sent to the workers.

    Attributes:
        config: application settings.
        subtopologies: the sub-topologies by number.
        tasks: the tasks by their key.
        partition_counts: number of partitions by topic.
        partitions: number of Spark partitions.
        fetcher: fetches the records of a batch.
        max_records: maximum number of records that a task buffers while it waits for records of other partitions. In a
            batch, it processes at most twice as many: the new and the buffered ones.
        max_bytes: maximum size of the keys, values and headers that a task buffers, in bytes.
        has_ticks: whether batches have ticks.
        global_stores: the global stores; None if there are none.
        stores: store numbers in the state, by sub-topology number and store name. If a sub-topology is missing, its
            stores are numbered in declaration order.
        earlier: hashes of earlier declarations, by sub-topology number; see ``TaskRuntime.continued``.
        order: all tasks in key order, including tasks of removed sub-topologies.
    """

    config: ApplicationConfig
    subtopologies: Mapping[int, Subtopology]
    tasks: Mapping[int, TaskNumber]
    partition_counts: Mapping[str, int]
    partitions: int
    fetcher: RecordFetcher
    max_records: int | None = None
    max_bytes: int | None = None
    has_ticks: bool = True
    global_stores: GlobalPlan | None = None
    stores: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    earlier: Mapping[int, frozenset[str]] = field(default_factory=dict)
    order: Sequence[TaskNumber] = ()

    @classmethod
    def create(
        cls,
        subtopologies: Mapping[int, Subtopology],
        config: ApplicationConfig,
        counts: Mapping[str, int],
        tasks: Sequence[TaskNumber],
        partitions: int,
        fetcher: RecordFetcher,
    ) -> ApplicationPlan:
        """Create the plan of an application, with the default page size unless the user set another size.

        Args:
            subtopologies: the sub-topologies by number.
            config: application settings.
            counts: number of partitions by topic.
            tasks: all tasks, including tasks of removed sub-topologies. Their order determines the keys, so new tasks
                come last.
            partitions: number of Spark partitions.
            fetcher: fetches the records of a batch.
        """
        if config.page_bytes is None:
            config = replace(config, page_bytes=_PAGE_BYTES)
        keys = choose_keys(len(tasks), partitions)
        return cls(
            config=config,
            subtopologies=subtopologies,
            tasks={key: task for key, task in zip(keys, tasks, strict=True) if task.subtopology in subtopologies},
            partition_counts=dict(counts),
            partitions=partitions,
            fetcher=fetcher,
            order=tuple(tasks),
        )

    def partitions_of(self, task: TaskNumber) -> list[TopicPartition]:
        """Return the Kafka partitions from which a task reads."""
        one = self.subtopologies[task.subtopology]
        return [
            TopicPartition(self._find_name(one, topic), task.partition)
            for topic in sorted(one.source_topics)
            if task.partition < one.partition_counts[topic]
        ]

    def count_partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic, for use by sink partitioners.

        Raises:
            StreamsError: the topic did not exist when the application started.
        """
        if topic not in self.partition_counts:
            raise StreamsError(
                f"sink topic {topic!r} did not exist at startup; create it if needed, then restart the application"
            )
        return self.partition_counts[topic]

    @property
    def keys_by_topic(self) -> dict[str, list[int]]:
        """The task key of each partition, by topic."""
        keys = {task: key for key, task in self.tasks.items()}
        return {
            self._find_name(one, topic): [
                keys[TaskNumber(number, partition)] for partition in range(one.partition_counts[topic])
            ]
            for number, one in self.subtopologies.items()
            for topic in sorted(one.source_topics)
        }

    @property
    def tasks_by_partition(self) -> dict[int, list[str]]:
        """Task ids by Spark partition of the operator; see ``packing.choose_keys``."""
        found: dict[int, list[str]] = {}
        for number, task in enumerate(self.order):
            if task.subtopology in self.subtopologies:
                found.setdefault(number % self.partitions, []).append(task.task_id)
        return found

    @cached_property
    def source_topics(self) -> frozenset[str]:
        """Kafka names of the topics that the tasks read."""
        return frozenset(self.keys_by_topic)

    @property
    def latest_topics(self) -> frozenset[str]:
        """Kafka names of the source topics that are read from their end offsets at the first start."""
        return frozenset(
            self._find_name(one, topic)
            for one in self.subtopologies.values()
            for topic in one.source_topics
            if one.offset_resets.get(topic) == "latest"
        )

    @property
    def starting_offsets(self) -> dict[str, dict[str, int]]:
        """Starting offsets of a source without a checkpoint, by topic and partition; see ``startingOffsets``."""
        latest = self.latest_topics
        return {
            topic: {str(number): LATEST if topic in latest else EARLIEST for number in range(len(keys))}
            for topic, keys in self.keys_by_topic.items()
        }

    @property
    def internal_topics(self) -> frozenset[str]:
        """Kafka names of the internal topics."""
        found = {topic for one in self.subtopologies.values() for topic in one.internal_topics}
        return frozenset(name_internal_topic(self.config.application_id, topic) for topic in found)

    def _find_name(self, subtopology: Subtopology, topic: str) -> str:
        """Return the Kafka name of ``topic``, which may be internal."""
        is_internal = topic in subtopology.internal_topics
        return name_internal_topic(self.config.application_id, topic) if is_internal else topic


def find_missing_topics(
    topology: ResolvedTopology, config: ApplicationConfig, counts: Mapping[str, int]
) -> dict[str, int]:
    """Return the partition counts of the missing internal topics, by topic name.

    Args:
        topology: the topology.
        config: application settings.
        counts: number of partitions by topic.
    """
    topics = {name_internal_topic(config.application_id, topic): n for topic, n in topology.internal_topics.items()}
    return {name: count for name, count in topics.items() if count is not None and name not in counts}


def select_subtopologies(
    topology: ResolvedTopology, config: ApplicationConfig, counts: Mapping[str, int]
) -> dict[int, Subtopology]:
    """Return the sub-topologies that have tasks: all sub-topologies except those of global stores.

    Args:
        topology: the topology.
        config: application settings.
        counts: number of partitions by topic.

    Raises:
        StreamsError: an internal topic does not exist, or has the wrong number of partitions.
        TopologyError: a source topic does not exist, or co-partitioned topics have different partition counts.
    """
    topology.check_partition_counts(counts)
    for topic, count in topology.internal_topics.items():
        name = name_internal_topic(config.application_id, topic)
        if name not in counts:
            raise StreamsError(
                f"internal topic {name!r} does not exist; create it: {format_creation_command(name, count or 1)}"
            )
        if counts[name] != count:
            raise StreamsError(
                f"internal topic {name!r}: the partition count must be {count}, got {counts[name]}; use a new "
                "application_id"
            )
    return {number: one for number, one in topology.subtopologies.items() if not one.is_global}


def list_tasks(subtopologies: Mapping[int, Subtopology]) -> list[TaskNumber]:
    """Return the tasks of all sub-topologies."""
    return [
        TaskNumber(number, partition) for number, one in subtopologies.items() for partition in range(one.task_count)
    ]
