"""The driver's side of a query: a member of the group that plans batches of what it owns.

Lives in the process that Spark runs for a streaming source. Offsets of batches are the truth, and are kept in
Spark's checkpoint; the group's offsets in ZooKeeper follow, as soon as Spark tells that a batch is done. Spark
tells it by asking for the next end after that batch: its ``latestOffset(start)`` comes only when the batch
that ends at ``start`` is in its commit log.

Source: Kafka 1.1 ZookeeperConsumerConnector for the group; Spark 4.3 MicroBatchExecution for the order of calls.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import socket
import time
from collections.abc import Mapping, Set
from typing import Any

from zkconsumer.broker import protocol
from zkconsumer.broker.cluster import LogOffsets
from zkconsumer.errors import (
    ConfigurationError,
    OwnershipLostError,
    RetriableError,
    ZkConsumerError,
    ZooKeeperUnavailableError,
)
from zkconsumer.fetcher.thread import RESET
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.listener import Claim
from zkconsumer.rebalance.member import GroupMember
from zkconsumer.retry import retrying
from zkconsumer.spark.data_loss import (
    end_offset_decreased,
    new_partition_truncated,
    raise_or_log,
    start_offset_deleted,
    topic_recreated,
    topics_deleted,
)
from zkconsumer.spark.driver.admission import Admission
from zkconsumer.spark.driver.alignment import Alignment, EventTimes
from zkconsumer.spark.driver.partition_state import PartitionState
from zkconsumer.spark.driver.partition_tracker import PartitionTracker
from zkconsumer.spark.driver.sampling import sample
from zkconsumer.spark.driver.standalone_reader import StandaloneReader
from zkconsumer.spark.driver.topic_ids import TopicIds, is_same_topic
from zkconsumer.spark.executor.decoders import RecordDecoder, opened
from zkconsumer.spark.offset import (
    INITIAL,
    Ranges,
    check_format,
    from_offset,
    known_by,
    next_sequence,
    to_offset,
    total,
)
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.options.starting_offsets import NEW, resolve
from zkconsumer.spark.options.subscription import Subscription
from zkconsumer.zookeeper.registry import GroupPaths, new_consumer_id

#: Seconds that a look at the ends of the logs is good for, when the last one found nothing new: Spark asks
#: about ninety times a second.
_IDLE_LOOK = 0.05

#: Seconds between two looks at how large records are, and the partitions that are looked at.
_WEIGH_EVERY, _WEIGHED = 10.0, 4


class Planner:
    """Plans batches, and is the member's ``PartitionHandler``.

    Spark's thread calls the first group of methods, the member's thread those of the handler; what both have to know
    of the partitions is in ``PartitionTracker``. Beside it the other one reads ``_closing``, which Spark's thread
    writes, and ``_given_up_at``, ``_failure`` and ``reread_records``, which the member's does.

    Args:
        seen: an offset from Spark's log, to begin with. What the checkpoint says must be known before partitions are
            claimed, so that a release of one of them waits for its batch.
        application: a number that queries of one application share, and others on this machine do not; None where it
            is not known.

    Raises:
        ConfigurationError: the checkpoint is that of another query.
    """

    def __init__(
        self, options: SourceOptions, seen: Mapping[str, Any] = INITIAL, *, application: int | None = None
    ) -> None:
        config = options.consumer
        self._siblings: re.Pattern[str] | None = None
        if application is not None:
            host, own = re.escape(socket.gethostname()), new_consumer_id(config.group_id)
            self._siblings = re.compile(rf"{re.escape(config.group_id)}_{host}-\d+-[0-9a-f]+-spark{application}")
            own = f"{own.removeprefix(config.group_id + '_')}-spark{application}"
            config = dataclasses.replace(config, consumer_id=own)
        self.release_timeout = options.handover_timeout
        self.reread_records = 0
        self._options = options
        self._config = config
        self._patience = options.unavailable_timeout
        self._subscription = subscription = _subscription(options, seen)
        self._no_internal = config.exclude_internal_topics
        self._member: GroupMember | StandaloneReader
        if options.is_member:
            registration = subscription.registration(options.streams)
            self._member = GroupMember(
                config, registration, self, auto_commit=False, patience=self._patience + options.handover_timeout
            )
        else:
            self._member = StandaloneReader(
                config, subscription, self, offsets=options.has_zookeeper, patience=options.unavailable_timeout
            )
        self._log = get_logger("zkconsumer.spark", group=config.group_id, consumer=self._member.consumer_id)
        self._logs = LogOffsets.of(self._member.cluster.brokers, config)
        self._tracker = PartitionTracker(options.starts, commits=options.commits)
        self._closing = False
        self._given_up_at = -1  # the number of the last rebalance before partitions were given up
        self._failure: BaseException | None = None
        # Spark's thread only.
        self._ends: dict[TopicPartition, int] = {}
        self._looked_at = 0.0
        self._trouble_since: float | None = None
        self._behind_since: float | None = None
        self._commit_postponed = False
        self._commits = self._commits_failed = 0
        self._stored_at: float | None = None
        self._admission = Admission(options.limits, time.monotonic)
        self._alignment = _alignment(options, self._logs)
        self._topics = TopicIds(
            self._member.cluster,
            self._logs,
            seen.get("ids", {}),
            seen.get("gone", ()),
            lambda: int(self._member.looks),
        )
        self._found_nothing = False  # at the last look
        self._weighed_at, self._size = -_WEIGH_EVERY, 0.0
        self._target: dict[TopicPartition, int] | None = None
        self._bounded = False
        self.note(seen)

    def start(self) -> None:
        """Join the group.

        A query that goes on has been in touch with this ZooKeeper before, and waits where it is away; a new one may
        have been told a wrong address, and says so soon.
        """
        self._member.start(self._patience if self._tracker.reached() else 0.0)
        self._log.info("query_joined", member=self._options.is_member, owned=len(self._member.assignment))
        others = {thread.rpartition("-")[0] for thread in self._member.group_assignment.values()} - {
            self._member.consumer_id
        }
        if self._siblings is not None and (siblings := sorted(filter(self._siblings.fullmatch, others))):
            self._log.warning(
                "another_query_of_this_application",
                members=siblings,
                remedy="each start of a query is a member of its own, so they share the partitions; where each is to "
                "read everything, give each a group.id of its own; where one was just stopped, it is still leaving",
            )

    def close(self) -> None:
        """Leave the group at once; a batch that is under way is left to the checkpoint."""
        self._closing = True
        self._member.wake()
        self._member.close()
        self._logs.close()

    def stop_at_present_end(self) -> None:
        """Plan nothing that is written after the next look at the logs (Trigger.AvailableNow)."""
        self._bounded, self._target = True, None

    # ---- Spark's thread ----

    def note(self, offset: Mapping[str, Any]) -> None:
        """Take note of an offset from Spark's log: its ranges are this query's, done or not."""
        self._tracker.observe(offset)

    def begin(self, offset: Mapping[str, Any]) -> Ranges:
        """Take note of a batch that is about to run: a new one, or one that is run again after a restart.

        Returns:
            its ranges, without those of topics that are gone, or others now.

        Raises:
            DataLossError: such records are not to be left out.
        """
        self.note(offset)
        ranges, ids = from_offset(offset), offset.get("ids", {})
        if ids and not self._topics.has_looked:  # a replay after a restart
            retrying(self._patience)(self._look_at_topics)
            while self._topics.is_uncertain:
                time.sleep(_IDLE_LOOK)
                retrying(self._patience)(self._look_at_topics)
        now = self._topics.known
        others = self._topics.gone | {t for t, known in ids.items() if not is_same_topic(known, now.get(t, known))}
        ranges = {partition: span for partition, span in ranges.items() if partition.topic not in others}
        self._tracker.put_in_flight(ranges)
        return ranges

    def acknowledge(self, offset: Mapping[str, Any]) -> None:
        """Store the group's offsets of a batch that is done; never raises, what fails is tried again later.

        Of a query that ends by itself this may be the last call, so there it is tried again at once.
        """
        deadline = time.monotonic() + self._patience
        self._acknowledge(offset)
        while self._bounded and self._is_unsettled() and time.monotonic() < deadline:
            time.sleep(_IDLE_LOOK)
            self._acknowledge(offset)

    def _is_unsettled(self) -> bool:
        is_settled = not self._tracker.uncommitted() and self._member.unbalanced_since is None
        return self._failure is None and not is_settled

    def _acknowledge(self, offset: Mapping[str, Any]) -> None:
        partitions = self._tracker.finish(offset)
        if not partitions:
            return
        try:
            stored = self._member.commit(self._tracker.uncommitted, timeout=self._config.connection_timeout)
        except ZkConsumerError as error:
            self._commits_failed += 1
            if not self._commit_postponed:  # once for each time of trouble: Spark asks about ninety times a second
                self._commit_postponed = True
                self._log.warning("commit_postponed", error=str(error), partitions=partitions)
            return
        self._commit_postponed = False
        self._commits += 1
        self._stored_at = time.monotonic()
        if self._tracker.record_commit(stored):
            self._member.wake()

    def plan(self, start: dict[str, Any], most: int | None = None, *, is_last: bool = False) -> dict[str, Any]:
        """Return the end of the next batch, or ``start`` itself where there is nothing new.

        Args:
            most: offsets that it may have; None for all that there are.
            is_last: there is no other batch (Trigger.Once), so this one waits for nothing.

        Raises:
            ZkConsumerError: the brokers were out of reach for longer than ``patience``, or the member failed.
        """
        while True:
            if self._failure is not None:
                raise self._failure
            try:
                end = self._plan(start, most, is_last)
            except (RetriableError, OwnershipLostError) as error:
                self._absorb(error)
                end = None
            else:
                self._trouble_since = None
            # A query that ends by itself would take ``start`` for its end.
            if end is not None or not (self._bounded or is_last):
                return start if end is None else end

    def _plan(self, start: dict[str, Any], most: int | None, is_last: bool) -> dict[str, Any] | None:
        """Return the end of the next batch, ``start`` where there is nothing new, or None to look again."""
        self._look_at_topics()
        ends_itself = self._bounded or is_last
        if ends_itself and self._topics.is_uncertain:
            time.sleep(_IDLE_LOOK)
            return None
        self._begin()
        positions = self._tracker.positions(self._topics.gone)
        if not positions:
            # Given up, or about to be, and not balanced anew since.
            # In this order: what is gained meanwhile is seen by the second.
            is_moving = self._given_up_at == self._member.rebalances or self._is_reassigning()
            unbalanced = self._target is None and self._member.unbalanced_since is not None
            if ends_itself and (is_moving or unbalanced):
                raise ZooKeeperUnavailableError("the member is not balanced (yet)")
            if ends_itself:
                self._look_at_topics()  # they may have gone since the look above
            return None if self._topics.is_uncertain else start
        ends = self._look(positions)
        if self._is_behind(positions, ends) and ends_itself:
            self._target = None
            time.sleep(_IDLE_LOOK)
            return None
        bounds: Mapping[TopicPartition, int] = ends
        if self._alignment is not None and not is_last:
            bounds = self._alignment.bound(positions, ends, closed=self._bounded)
        waiting = {p: max(0, bounds.get(p, position) - position) for p, position in positions.items()}
        shares = self._admission.admit(
            waiting,
            most=most,
            backlog=sum(max(0, ends.get(p, position) - position) for p, position in positions.items()),
            at_once=ends_itself,
            sizes=lambda some: self._sizes({partition: positions[partition] for partition in some}),
        )
        self._found_nothing = not shares
        self._weigh({partition: positions[partition] for partition in shares})
        if not shares:
            if self._bounded and any(waiting.values()):  # by the limit of bytes it has to wait
                time.sleep(_IDLE_LOOK)
                return None
            return start
        ranges = {p: (position, position + shares.get(p, 0)) for p, position in positions.items()}
        ranges, known, before = self._tracker.plan(ranges, self._topics.gone)
        if not ranges:
            return start
        return to_offset(
            ranges,
            self._member.rebalances,
            known,
            self._config.group_id,
            self._topics.known,
            self._topics.gone,
            before,
            next_sequence(start),
        )

    def _is_reassigning(self) -> bool:
        """Whether another member waits for a partition, or the position of an acquired one is not known yet."""
        return any(
            state is PartitionState.REVOKING
            or (state is PartitionState.CLAIMED and partition.topic not in self._topics.gone)
            for partition, state in self._tracker.states().items()
        )

    def find_leaders(self, ranges: Ranges) -> dict[TopicPartition, tuple[int, Any]]:
        """Return the leaders of the partitions, as far as they are known; tasks look for the others."""
        try:
            return self._logs.find_leaders(ranges)
        except RetriableError as error:
            self._log.warning("leaders_not_found", error=str(error))
            return {}

    def brokers(self) -> tuple[Any, ...]:
        """Return where tasks may ask for leaders."""
        known = {endpoint for _, endpoint in self._logs.leaders.values()}
        try:
            known.update(self._member.cluster.brokers())
        except ZkConsumerError as error:
            self._log.warning("brokers_not_read", error=str(error))
        return tuple(sorted({endpoint.among(known) for endpoint in known}, key=str))

    def latest(self) -> dict[str, Any]:
        """Return the ends of the logs as they were last seen, for Spark's progress reports."""
        ends = {partition: (end, end) for partition, end in self._ends.items()}
        offset = to_offset(ends, self._member.rebalances)
        reached = self._tracker.reached()
        behind = [max(0, end - reached.get(partition, end)) for partition, end in self._ends.items()] or [0]
        return {
            "latest": {t: {p: span[1] for p, span in ps.items()} for t, ps in offset["ranges"].items()},
            "lag": sum(behind),
            "maxOffsetsBehindLatest": max(behind),
            "minOffsetsBehindLatest": min(behind),
            "avgOffsetsBehindLatest": sum(behind) / len(behind),
            "consumer": self._member.consumer_id,
            "owned": len(self._tracker.states()),
            "bytesPerRecord": round(self._size, 1),
            "rebalances": self._member.rebalances,
            "rereadRecords": self.reread_records,
            "commits": self._commits,
            "commitsFailed": self._commits_failed,
            "commitAgeSeconds": None if self._stored_at is None else round(time.monotonic() - self._stored_at, 3),
            **({} if self._alignment is None else self._alignment.state()),
        }

    def _look_at_topics(self) -> None:
        """Find out which topics are gone, or others now, and begin in those from their beginning.

        Raises:
            DataLossError: that is not to happen.
        """
        topics = [t for t in self._tracker.topics() if self._subscription.wants(t, self._no_internal)]
        gone, anew, back = self._topics.look(topics)
        losses = [topics_deleted(gone)] if gone else []
        losses += [topic_recreated(topic, *ids) for topic, ids in sorted(anew.items()) if topic not in back]
        for loss in losses:
            raise_or_log(loss, self._options.fails_on_data_loss, self._log)
        if anew:
            self._target = None  # it is that of the first one's log
            self._tracker.reset_topics(anew)

    def _begin(self) -> None:
        """Find out where partitions begin that were gained, and check that the log has that.

        A start that no checkpoint and no group knew is stored at once: were the partition to go to another member
        before its first batch is done, that one would apply its own ``auto.offset.reset`` and skip what this batch had.

        Raises:
            DataLossError: a log begins behind the offset to read next. It is told before such a range is in Spark's
                log, which would repeat it for ever.
        """
        begins = self._tracker.pending_starts(self._topics.gone)
        if not begins:
            return
        found = resolve(begins, self._logs, RESET[self._config.auto_offset_reset])
        firsts = self._logs.offsets(begins, protocol.EARLIEST)
        begun = {p: self._inside(p, offset, firsts[p]) for p, offset in found.items()}
        for partition in [p for p, begin in begins.items() if begin.source == NEW and begun[p] > 0]:
            raise_or_log(
                new_partition_truncated(partition, begun[partition]), self._options.fails_on_data_loss, self._log
            )
        if self._options.commits:
            new = {p for p, begin in begins.items() if begin.source not in ("checkpoint", "group")}
            new |= {p for p, offset in begun.items() if offset != found[p]}
            if new:
                self._member.commit(
                    lambda: {p: begun[p] for p in new & self._tracker.still_pending(begins)},
                    may_go_back=True,
                    timeout=self._config.connection_timeout,
                )
        self._tracker.set_positions(begins, begun)
        self._log.info(
            "start_offsets", begin={str(p): f"{offset} ({begins[p].source})" for p, offset in sorted(begun.items())}
        )

    def _inside(self, partition: TopicPartition, offset: int, first: int) -> int:
        """Return the offset, or the first one of the log, where records may be lost."""
        if offset >= first:
            return offset
        path = GroupPaths(self._config.group_id).offset(partition)
        loss = start_offset_deleted(
            partition, offset, first, f"Or write {first} to {path} in ZooKeeper and start it again."
        )
        raise_or_log(loss, self._options.fails_on_data_loss, self._log)
        return first

    def _look(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends of the logs."""
        if self._target is not None:
            return self._target
        now = time.monotonic()
        is_idle = self._found_nothing and positions.keys() <= self._ends.keys()
        if not (is_idle and now < self._looked_at + _IDLE_LOOK):
            self._ends = self._logs.offsets(positions, protocol.LATEST)
            self._looked_at = now
        if self._bounded:
            self._target = dict(self._ends)
        return self._ends

    def _weigh(self, positions: Mapping[TopicPartition, int]) -> None:
        """Look now and then at how large records are, for those who want to know bytes per second."""
        now = time.monotonic()
        if positions and now > self._weighed_at + _WEIGH_EVERY:
            self._weighed_at = now
            with contextlib.suppress(RetriableError):  # it is for show alone
                sampled = sample(self._logs, dict(list(positions.items())[:_WEIGHED])).values()
                offsets = sum(one.until - one.start for one in sampled)
                self._size = sum(one.bytes_per_offset * (one.until - one.start) for one in sampled) / max(1, offsets)

    def _sizes(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        return {partition: sampled.bytes_per_offset for partition, sampled in sample(self._logs, positions).items()}

    def _is_behind(self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
        """Whether a log ends before the position in it; a new leader may tell less for a moment.

        Raises:
            DataLossError: it has been so for longer than ``patience``.
        """
        behind = sorted(p for p, position in positions.items() if ends.get(p, position) < position)
        if not behind:
            self._behind_since = None
            return False
        now = time.monotonic()
        if self._behind_since is None:
            self._behind_since = now
        partition = behind[0]
        loss = end_offset_decreased(partition, positions[partition], ends[partition])
        if now - self._behind_since > self._patience:
            if self._options.fails_on_data_loss:
                raise loss
            self._tracker.reset_partitions(behind)  # it is looked up, and so checked
            self._behind_since = None
        if self._behind_since == now:
            self._log.warning("position_behind_the_end", error=str(loss))
        return True

    def _absorb(self, error: ZkConsumerError) -> None:
        now = time.monotonic()
        if self._trouble_since is None:
            self._trouble_since = now
            self._log.warning("brokers_out_of_reach", error=str(error))
        if now - self._trouble_since > self._patience:
            raise ZkConsumerError(
                f"the brokers have been out of reach for {self._patience:g} s (option unavailable.timeout.ms): {error}"
            ) from error
        time.sleep(_IDLE_LOOK)

    # ---- PartitionHandler, in the member's thread ----

    def acquire(self, claims: Mapping[TopicPartition, Claim]) -> None:
        """Plan from where ``StartingOffsets`` says, with the group's offset and the checkpoint in mind."""
        # With roundrobin the group's assignment has topics of others, too.
        known = {p for p in self._member.group_assignment if self._subscription.wants(p.topic, self._no_internal)}
        self._tracker.acquire(claims, known)

    def release(self, partitions: Set[TopicPartition], final: bool) -> Mapping[TopicPartition, int] | None:
        """Wait until what was planned of the partitions is done and stored; ``final`` gives that up."""
        self._given_up_at = self._member.rebalances
        released = self._tracker.release(partitions, final=final or self._closing)
        if released is None:
            return None
        done, given_up = released
        if given_up and not self._closing:  # at the end of a query its checkpoint has the batch
            self.reread_records += total(given_up)
            self._log.warning(
                "released_before_done",
                partitions={str(p): list(span) for p, span in sorted(given_up.items())},
                records=total(given_up),
                remedy="their next owner reads these records again; make batches shorter than handover.timeout.ms",
            )
        return done

    def lose(self) -> None:
        """Plan nothing more until the partitions are claimed again."""
        self._given_up_at = self._member.rebalances
        self._tracker.lose()

    def consumed(self) -> Mapping[TopicPartition, int]:
        """Nothing: offsets are stored when a batch is done, not by the clock."""
        return {}

    def fail(self, error: BaseException) -> None:
        """Have the query fail at its next trigger."""
        self._failure = error


def _alignment(options: SourceOptions, logs: LogOffsets) -> Alignment | None:
    """Return what aligns the partitions in event time, where that is asked for."""
    if options.alignment is None:
        return None
    event_time = None
    if options.decoder is not None:
        decoder = opened(*options.decoder)
        if isinstance(decoder, RecordDecoder) and type(decoder).event_time is not RecordDecoder.event_time:
            event_time = decoder.event_time
    return Alignment(EventTimes(*options.alignment, time.monotonic), logs, event_time)


def _subscription(options: SourceOptions, seen: Mapping[str, Any]) -> Subscription:
    """Return what the query subscribes to, after a look at whose checkpoint it is.

    Raises:
        ConfigurationError: it is another query's, or was not written by this source.
    """
    check_format(seen)
    subscription, group = options.subscription, seen.get("group")
    if group not in (None, options.consumer.group_id):
        raise ConfigurationError(
            f"the checkpoint is that of group {group!r}, and group.id is {options.consumer.group_id!r}; set that "
            "again, or start with another checkpointLocation"
        )
    restored = {partition.topic for partition in known_by(seen)}
    exclude = options.consumer.exclude_internal_topics
    unwanted = sorted(topic for topic in restored if not subscription.wants(topic, exclude))
    if not unwanted:
        return subscription
    if options.keeps_restored:
        if not subscription.topics:
            raise ConfigurationError("option restore.filter = 'false' goes with subscribe, which names topics")
        return Subscription(topics=(*subscription.topics, *unwanted))
    if len(unwanted) == len(restored):
        raise ConfigurationError(
            f"the checkpoint knows the topics {', '.join(unwanted)}, and none of them is subscribed to; subscribe to "
            "one of them, set restore.filter=false, or start with another checkpointLocation"
        )
    get_logger("zkconsumer.spark", group=options.consumer.group_id).warning("topics_left_out", topics=unwanted)
    return subscription
