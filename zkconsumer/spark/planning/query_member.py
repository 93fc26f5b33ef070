"""Joins the group for a query, and acquires and releases the query's partitions."""

from __future__ import annotations

import dataclasses
import re
import socket
import threading
from collections.abc import Iterable, Mapping, Set
from typing import Any

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ClosedError, ConfigurationError, ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.handler import AssignedPartition, PartitionHandler
from zkconsumer.rebalance.member_factory import create_member
from zkconsumer.spark.offset import BatchOffset, check_format, total
from zkconsumer.spark.options.check_existence import check_brokers, check_offsets
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.options.subscription import Subscription
from zkconsumer.spark.planning.member import Member
from zkconsumer.spark.planning.partition_tracker import PartitionTracker
from zkconsumer.spark.planning.standalone_member import StandaloneMember
from zkconsumer.zookeeper.registry import consumer_of, new_consumer_id


class QueryMember(PartitionHandler):
    """Owns a query's group member and partition tracker.

    After ``start``, the member thread calls the ``PartitionHandler`` methods, and Spark's thread calls the others.
    Both threads use the tracker, which has a lock. Spark's thread reads ``_failure``, ``_revoked_during`` and
    ``_reread_records`` without a lock, because only the member thread writes them after ``resume``.

    Args:
        seen: an offset from Spark's offset log. The ranges of the last batch must be known before partitions are
            acquired, so that their release waits for the batch. None if it is not known yet: partitions are acquired
            when ``resume`` is called, and released immediately until then.
        application: number of the Spark application, unique on this host; None if it is unknown.

    Attributes:
        config: consumer properties, with a consumer id that contains the application number.
        group_member: the group member.
        tracker: states of the partitions.
        stopping: set when the query is being stopped.
        log: logger with the group and the consumer id.

    Raises:
        ConfigurationError: the checkpoint belongs to another query.
    """

    def __init__(
        self, options: SourceOptions, seen: Mapping[str, Any] | None, *, application: int | None = None
    ) -> None:
        self.release_timeout_s = options.revoke_timeout_s
        self._options = options = dataclasses.replace(
            options, consumer=_with_application(options.consumer, application)
        )
        self._application = application
        self._subscription = options.subscription if seen is None else restored_subscription(options, seen)
        self._has_joined = False
        self._lock = threading.Lock()  # guards _claims
        #: Partitions that were assigned before ``resume`` was called; None afterwards.
        self._claims: dict[TopicPartition, AssignedPartition] | None = {} if seen is None else None
        self._reread_records = 0
        self._revoked_during: int | None = None  # ``group_member.rebalances`` when partitions were last revoked or lost
        self._failure: ZkConsumerError | None = None
        self.config = options.consumer
        self.tracker = PartitionTracker(options.starting_offsets, commits=options.commits)
        if seen is not None:
            self.tracker.record_offset(seen)
        self.stopping = threading.Event()
        self.group_member = _new_member(options, self._subscription, self)
        self.log = get_logger("zkconsumer.spark", group=self.config.group_id, consumer_id=self.group_member.consumer_id)

    # ---- called by Spark's thread ----

    def join(self) -> None:
        """Join the group before the checkpoint is known. ``resume`` and ``start`` must be called afterwards.

        Raises:
            ZkConsumerError: ZooKeeper or the brokers are unreachable, or the first rebalance failed.
        """
        check_brokers(self.config)
        self.group_member.start()
        self._has_joined = True

    def resume(self, seen: Mapping[str, Any]) -> bool:
        """Acquire the assigned partitions of a member that has joined early.

        Args:
            seen: an offset from Spark's offset log.

        Returns:
            Whether the member can continue. False if the checkpoint adds topics to the subscription: the caller must
            close this member, and create a new one.

        Raises:
            ConfigurationError: the checkpoint belongs to another query.
        """
        if restored_subscription(self._options, seen) != self._subscription:
            return False
        with self._lock:
            claims, self._claims = self._claims, None
            self.tracker.record_offset(seen)
            if claims:
                self._reread_records += self.tracker.acquire(claims, self._find_existing())
        return True

    def start(self) -> None:
        """Join the group, unless ``join`` was called, and check the options.

        A query that resumes waits up to ``clusterUnavailableTimeout`` for ZooKeeper and the brokers, because it has
        connected to them before. A new query waits up to ``zookeeper.connection.timeout.ms``, because the addresses may
        be wrong.

        Raises:
            ConfigurationError: a starting option names a topic or partition that does not exist.
            ZkConsumerError: ZooKeeper or the brokers are unreachable, or the first rebalance failed.
        """
        is_new = not self.tracker.planned_until()
        if is_new and not self._has_joined:
            self.join()
        elif not self._has_joined:
            self.group_member.start(self._options.unavailable_timeout_s)
        if is_new:
            self._check_starting_offsets()
        membership = "group" if self._options.is_member else "none"
        self.log.info("query_started", membership=membership, owned_count=len(self.group_member.assignment))
        self._check_other_queries()

    def _check_starting_offsets(self) -> None:
        try:
            check_offsets(self._options.starting_offsets, self._find_existing())
        except ConfigurationError:
            self.close()
            raise

    def _check_other_queries(self) -> None:
        """Log a warning if other queries of the application are members of the group."""
        if self._application is None:
            return
        threads = self.group_member.group_assignment.values()
        members = _other_members_of_application(
            self.group_member.consumer_id, self.config.group_id, self._application, threads
        )
        if members:
            self.log.warning(
                "duplicate_query_detected",
                members=sorted(members),
                remedy="set a different group.id for each query or source that must read all partitions, because "
                "those with the same group.id share them; ignore this warning if the other query was just stopped",
            )

    def warn_if_unassigned(self) -> None:
        """Log a warning if other members of the group own all existing partitions to which the query subscribes."""
        assignment = self.group_member.group_assignment
        owners = {consumer_of(assignment[partition]) for partition in self._find_existing()}
        if owners and self.group_member.consumer_id not in owners:
            self.log.warning(
                "no_partitions_assigned",
                members=sorted(owners),
                remedy="if the query was killed and restarted, run it again: ZooKeeper deletes the registration of a "
                "killed query when zookeeper.session.timeout.ms has expired; to read all partitions beside running "
                "members, use another group.id",
            )

    def close(self) -> None:
        """Leave the group immediately. An in-flight batch is replayed from the checkpoint when the query restarts."""
        self.stopping.set()
        self.group_member.wake()
        self.group_member.close()

    def wants(self, topic: str) -> bool:
        """Return whether the query subscribes to ``topic``."""
        return self._subscription.wants(topic, self.config.exclude_internal_topics)

    def _find_existing(self) -> set[TopicPartition]:
        """Return the existing partitions to which the query subscribes."""
        # With the roundrobin strategy, the group's assignment contains topics that only other members read.
        return {partition for partition in self.group_member.group_assignment if self.wants(partition.topic)}

    def check_failure(self) -> None:
        """Raise the error that terminated the member, if there is one."""
        if self._failure is not None:
            raise self._failure

    @property
    def has_failed(self) -> bool:
        """Whether an error terminated the member."""
        return self._failure is not None

    def wait(self, interval_s: float) -> None:
        """Block for ``interval_s`` seconds before a retry.

        Raises:
            ClosedError: the query is being stopped.
        """
        if self.stopping.wait(interval_s):
            raise ClosedError("the query was stopped; no further batches will be planned")

    def is_reassigning(self) -> bool:
        """Return whether partitions were revoked in an unfinished rebalance, are being released, or lack a position."""
        # The order matters: the second check sees partitions that are acquired after the first check.
        return self._is_rebalancing() or self.tracker.is_moving()

    def _is_rebalancing(self) -> bool:
        return self._revoked_during == self.group_member.rebalances

    def state(self) -> dict[str, Any]:
        """Return the progress report entries: consumer id, owned partitions, rebalances, and re-read records.

        Other members read records of this query's batches again if the records were in flight when a partition was
        released early, or not committed when the session ended.
        """
        lost = 0 if self._is_rebalancing() else self.tracker.lost_records()
        return {
            "consumer": self.group_member.consumer_id,
            "owned": len(self.tracker.states()),
            "rebalances": self.group_member.rebalances,
            "rereadRecords": self._reread_records + lost,
        }

    # ---- PartitionHandler methods, called by the member thread ----

    def on_partitions_assigned(self, partitions: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Mark partitions as owned. The checkpoint and the committed offsets determine their start positions."""
        with self._lock:
            if self._claims is not None:
                self._claims.update(partitions)
                return
        self._reread_records += self.tracker.acquire(partitions, self._find_existing())

    def on_partitions_revoked(
        self, partitions: Set[TopicPartition], final: bool
    ) -> Mapping[TopicPartition, int] | None:
        """Release partitions after their batch has finished and is committed, or immediately with ``final``."""
        self._revoked_during = self.group_member.rebalances
        with self._lock:
            if self._claims is not None:
                for partition in partitions:
                    self._claims.pop(partition, None)
                return {}
        is_closing = self.stopping.is_set()
        released = self.tracker.release(partitions, final=final or is_closing)
        if released is None:
            return None
        offsets, in_flight = released
        if in_flight and not is_closing:  # after a close, the query replays the batch when it restarts
            self._reread_records += total(in_flight)
            self.log.warning(
                "partitions_released_early",
                ranges={str(p): list(span) for p, span in sorted(in_flight.items())},
                records=total(in_flight),
                remedy="reduce the batch duration below revokeTimeout, so that the next owner does not re-read records",
            )
        return offsets

    def on_partitions_lost(self) -> None:
        """Mark all partitions as not owned. No batch is planned until partitions are acquired again."""
        self._revoked_during = self.group_member.rebalances
        with self._lock:
            if self._claims is not None:
                self._claims.clear()
        self.tracker.lose()

    def on_lease_expired(self) -> None:
        """Do nothing: a batch is planned only while the lease is held, and a running batch is completed."""

    def consumed_offsets(self) -> Mapping[TopicPartition, int]:
        """Return nothing: offsets are committed when a batch has finished, not periodically."""
        return {}

    def take_resets(self) -> Set[TopicPartition]:
        """Return nothing: the planner commits lower offsets explicitly."""
        return frozenset()

    def fail(self, error: ZkConsumerError) -> None:
        """Make the next call to ``Planner.plan`` raise the error."""
        self._failure = error


def _new_member(options: SourceOptions, subscription: Subscription, handler: PartitionHandler) -> Member:
    """Create a group member, or, with ``membership=none``, a member that owns all partitions."""
    if options.is_member:
        return create_member(
            options.consumer,
            subscription.registration(options.streams),
            handler,
            auto_commit=False,
            first_rebalance_timeout_s=options.unavailable_timeout_s + options.revoke_timeout_s,
        )
    return StandaloneMember(
        options.consumer,
        subscription,
        handler,
        has_offsets=options.has_zookeeper,
        unavailable_timeout_s=options.unavailable_timeout_s,
    )


def _with_application(config: ConsumerConfig, application: int | None) -> ConsumerConfig:
    """Return ``config`` with a new consumer id that ends in ``-spark<application>``.

    Args:
        application: number of the Spark application, unique on this host; None to keep the consumer id.
    """
    if application is None:
        return config
    generated = new_consumer_id(config.group_id).removeprefix(f"{config.group_id}_")
    return dataclasses.replace(config, consumer_id=f"{generated}-spark{application}")


def _other_members_of_application(
    consumer_id: str, group_id: str, application: int, thread_ids: Iterable[str]
) -> set[str]:
    """Return the consumer ids of the application's other queries on this host, given the group's thread ids."""
    host = re.escape(socket.gethostname())
    pattern = re.compile(rf"{re.escape(group_id)}_{host}-\d+-[0-9a-f]+-spark{application}")
    return {other for thread in thread_ids if pattern.fullmatch(other := consumer_of(thread))} - {consumer_id}


def restored_subscription(options: SourceOptions, offset: Mapping[str, Any]) -> Subscription:
    """Return the subscription of a query that resumes from an offset in its checkpoint.

    With ``ignoreUnsubscribedTopics=false``, all topics of the checkpoint are added to the subscription.

    Raises:
        ConfigurationError: the checkpoint was written for another group or other topics, by another data source, or by
            a later release; or ``ignoreUnsubscribedTopics=false`` requires the option ``subscribe``.
    """
    check_format(offset)
    subscription, last = options.subscription, BatchOffset.from_json(offset)
    if (group := last.group) not in (None, options.consumer.group_id):
        raise ConfigurationError(
            f"the checkpoint belongs to group {group!r}, but group.id is {options.consumer.group_id!r}; to change the "
            "group, use a new checkpointLocation"
        )
    topics = {partition.topic for partition in last.partitions}
    exclude_internal = options.consumer.exclude_internal_topics
    unsubscribed = sorted(topic for topic in topics if not subscription.wants(topic, exclude_internal))
    if unsubscribed and options.keeps_unsubscribed:
        if not subscription.topics:
            raise ConfigurationError(
                "option ignoreUnsubscribedTopics=false requires the option subscribe, because the checkpoint contains "
                f"topics outside the subscription: {', '.join(unsubscribed)}"
            )
        return Subscription(topics=(*subscription.topics, *unsubscribed))
    if unsubscribed and len(unsubscribed) == len(topics):
        raise ConfigurationError(
            f"the query subscribes to none of the topics in its checkpoint ({', '.join(unsubscribed)}); to read only "
            "other topics, use a new checkpointLocation"
        )
    log = get_logger("zkconsumer.spark", group=options.consumer.group_id)
    if unsubscribed:
        log.warning("checkpoint_topics_ignored", topics=unsubscribed, reason="the query no longer subscribes to them")
    unassigned = [p for p in sorted(last.partitions) if p.topic not in unsubscribed and p not in subscription.assigned]
    if subscription.assigned and unassigned:
        log.warning(
            "checkpoint_partitions_ignored",
            partitions=[str(partition) for partition in unassigned],
            reason="option assign does not contain these partitions",
        )
    return subscription
