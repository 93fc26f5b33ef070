"""The driver's side of a query: a member of the group that plans batches of what it owns.

Lives in the process that Spark runs for a streaming source. Offsets of batches are the truth, and are kept in
Spark's checkpoint; the group's offsets in ZooKeeper follow, as soon as Spark tells that a batch is done. Spark
tells it by asking for the next end after that batch: its ``latestOffset(start)`` comes only when the batch
that ends at ``start`` is in its commit log.

Source: Kafka 1.1 ZookeeperConsumerConnector for the group; Spark 4.3 MicroBatchExecution for the order of calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Set
from typing import Any

from zkconsumer.broker import protocol
from zkconsumer.broker.security import Security
from zkconsumer.cluster import LogOffsets
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import (
    OffsetOutOfRangeError,
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
from zkconsumer.registry import GroupPaths, Registration
from zkconsumer.spark.ranges import Ranges, from_offset, to_offset, total

#: Seconds that a look at the ends of the logs is good for, when the last one found nothing new: Spark asks
#: about ninety times a second.
_IDLE_LOOK = 0.05


class Planner:
    """Plans batches, and is the member's ``PartitionHandler``.

    Spark's thread calls the first group of methods, the member's thread those of the handler.
    The lock guards the fields between the two; it is not held while ZooKeeper or brokers are asked.

    Args:
        topics: topic to thread ids, the query's share of the group.
        handover: seconds that a partition which goes to another member may wait for its batch.
        patience: seconds that brokers may be out of reach.
    """

    def __init__(self, config: ConsumerConfig, topics: Mapping[str, int], *, handover: float, patience: float) -> None:
        assert config.client_id is not None
        self.release_timeout = handover
        self.reread_records = 0
        self._config = config
        self._patience = patience
        self._topics = dict(topics)
        self._member = GroupMember(config, Registration.static(topics), self, auto_commit=False)
        self._log = get_logger("zkconsumer.spark", group=config.group_id, consumer=self._member.consumer_id)
        self._logs = LogOffsets(
            self._member.cluster.brokers,
            config.client_id,
            timeout=config.socket_timeout_ms / 1000,
            read_committed=config.read_committed,
            security=Security.of(config),
        )
        self._lock = threading.Lock()
        self._owned: dict[TopicPartition, int] = {}  # the group's offset when it was claimed
        self._unchecked: set[TopicPartition] = set()  # claimed, and not known to begin inside the log
        self._leaving: set[TopicPartition] = set()
        self._reached: dict[TopicPartition, int] = {}  # where this query's batches ended so far
        self._in_flight: Ranges = {}  # planned, and not known to be done
        self._done: dict[TopicPartition, int] = {}  # done, and not in ZooKeeper yet
        self._closing = False
        self._failure: BaseException | None = None
        # Spark's thread only.
        self._ends: dict[TopicPartition, int] = {}
        self._looked_at = 0.0
        self._trouble_since: float | None = None
        self._behind_since: float | None = None
        self._commit_postponed = False
        self._target: dict[TopicPartition, int] | None = None
        self._bounded = False

    def start(self) -> None:
        """Join the group."""
        self._member.start()
        self._log.info("query_joined", streams=self._topics, owned=len(self._member.assignment))

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
        with self._lock:
            for partition, (_, until) in from_offset(offset).items():
                self._reached[partition] = max(until, self._reached.get(partition, -1))

    def begin(self, offset: Mapping[str, Any]) -> None:
        """Take note of a batch that is about to run: a new one, or one that is run again after a restart."""
        self.note(offset)
        with self._lock:
            for partition, (start, until) in from_offset(offset).items():
                if start < until and self._owned.get(partition, until) < until:
                    self._in_flight[partition] = (start, until)

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
        with self._lock:
            return self._failure is None and (bool(self._done) or self._member.unbalanced_since is not None)

    def _acknowledge(self, offset: Mapping[str, Any]) -> None:
        with self._lock:
            for partition, (_, until) in from_offset(offset).items():
                self._reached[partition] = max(until, self._reached.get(partition, -1))
                flying = self._in_flight.get(partition)
                if flying is not None and flying[1] <= until:
                    del self._in_flight[partition]
                if partition in self._owned and until > self._owned[partition]:
                    self._done[partition] = max(until, self._done.get(partition, -1))
            done = dict(self._done)
        if not done:
            return
        try:
            stored = self._member.commit(self._done_and_owned, timeout=self._config.connection_timeout)
        except ZkConsumerError as error:
            if not self._commit_postponed:  # once for each time of trouble: Spark asks about ninety times a second
                self._commit_postponed = True
                self._log.warning("commit_postponed", error=str(error), partitions=len(done))
            return
        self._commit_postponed = False
        with self._lock:
            for partition, offset_stored in stored.items():
                if partition in self._owned:
                    self._owned[partition] = max(offset_stored, self._owned[partition])
                if self._done.get(partition, -1) <= offset_stored:
                    self._done.pop(partition, None)
            leaving = bool(self._leaving)
        if leaving:
            self._member.wake()

    def plan(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the end of the next batch, or ``start`` itself where there is nothing new.

        Raises:
            ZkConsumerError: the brokers were out of reach for longer than ``patience``, or the member failed.
        """
        while True:
            if self._failure is not None:
                raise self._failure
            try:
                end = self._plan(start)
            except (RetriableError, OwnershipLostError) as error:
                self._absorb(error)
                end = None
            else:
                self._trouble_since = None
            # A query that ends by itself would take ``start`` for its end.
            if end is not None or not self._bounded:
                return start if end is None else end

    def _plan(self, start: dict[str, Any]) -> dict[str, Any] | None:
        """Return the end of the next batch, ``start`` where there is nothing new, or None to look again."""
        with self._lock:
            positions = {
                partition: max(offset, self._reached.get(partition, -1))
                for partition, offset in self._owned.items()
                if partition not in self._leaving
            }
        if not positions:
            if self._bounded and self._target is None and self._member.unbalanced_since is not None:
                raise ZooKeeperUnavailableError("the member is not balanced (yet)")
            return start
        positions = self._resolve(positions)
        self._check_beginnings(positions)
        ends = self._look(positions)
        if self._is_behind(positions, ends) and self._bounded:
            self._target = None
            time.sleep(_IDLE_LOOK)
            return None
        ranges = {
            partition: (position, max(position, ends.get(partition, position)))
            for partition, position in positions.items()
        }
        with self._lock:
            # What has been taken away meanwhile is not ours to plan.
            ranges = {p: span for p, span in ranges.items() if p in self._owned and p not in self._leaving}
            if not total(ranges):
                return start
            for partition, (position, until) in ranges.items():
                self._reached[partition] = until
                if position < until:
                    self._in_flight[partition] = (position, until)
        return to_offset(ranges, self._member.rebalances)

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
        return {
            "latest": {t: {p: span[1] for p, span in ps.items()} for t, ps in offset["ranges"].items()},
            "lag": sum(max(0, end - self._reached.get(partition, end)) for partition, end in self._ends.items()),
            "owned": len(self._owned),
            "rebalances": self._member.rebalances,
            "rereadRecords": self.reread_records,
        }

    def _done_and_owned(self) -> dict[TopicPartition, int]:  # in the member's thread
        with self._lock:
            return {partition: until for partition, until in self._done.items() if partition in self._owned}

    def _resolve(self, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Give partitions without an offset the one that ``auto.offset.reset`` says.

        It is stored at once: were a partition to go to another member before its first batch is done, and were
        nothing stored, that member would apply its own ``auto.offset.reset`` and skip what this batch had.
        """
        unknown = [partition for partition, position in positions.items() if position < 0]
        if not unknown:
            return positions
        found = self._logs.offsets(unknown, RESET[self._config.auto_offset_reset])
        self._member.commit(
            lambda: {partition: offset for partition, offset in found.items() if partition in self._owned},
            timeout=self._config.connection_timeout,
        )
        with self._lock:
            for partition, offset in found.items():
                if partition in self._owned:
                    self._owned[partition] = offset
        return {**positions, **found}

    def _check_beginnings(self, positions: Mapping[TopicPartition, int]) -> None:
        """Refuse to begin before the log does, before such a range is in Spark's log, which would repeat it for ever.

        Raises:
            OffsetOutOfRangeError: the records from an offset on are not there any more.
        """
        with self._lock:
            unchecked = self._unchecked & positions.keys()
        if not unchecked:
            return
        for partition, first in sorted(self._logs.offsets(unchecked, protocol.EARLIEST).items()):
            if positions[partition] < first:
                path = GroupPaths(self._config.group_id).offset(partition)
                raise OffsetOutOfRangeError(
                    f"topic {partition.topic!r} partition {partition.partition}: the next offset of the group is "
                    f"{positions[partition]}, but its log begins at {first}; the records between are lost. To go on "
                    f"without them, write {first} to {path} in ZooKeeper and start the query again"
                )
        with self._lock:
            self._unchecked -= unchecked

    def _look(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends of the logs."""
        if self._target is not None:
            return self._target
        now = time.monotonic()
        nothing_new = all(self._ends.get(partition) == position for partition, position in positions.items())
        if not (nothing_new and now < self._looked_at + _IDLE_LOOK):
            self._ends = self._logs.offsets(positions, protocol.LATEST)
            self._looked_at = now
        if self._bounded:
            self._target = dict(self._ends)
        return self._ends

    def _is_behind(self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
        """Whether a log ends before the position in it; a new leader may tell less for a moment.

        Raises:
            OffsetOutOfRangeError: it has been so for longer than ``patience``.
        """
        behind = sorted(p for p, position in positions.items() if ends.get(p, position) < position)
        if not behind:
            self._behind_since = None
            return False
        now = time.monotonic()
        if self._behind_since is None:
            self._behind_since = now
        topic, partition = behind[0]
        text = (
            f"topic {topic!r} partition {partition}: offset {positions[behind[0]]} is behind the end of the log, "
            f"{ends[behind[0]]}; was the topic created anew?"
        )
        if now - self._behind_since > self._patience:
            raise OffsetOutOfRangeError(text)
        if self._behind_since == now:
            self._log.warning("position_behind_the_end", error=text)
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
        """Plan from the group's offset, or from where this query itself has come further."""
        with self._lock:
            for partition, claim in claims.items():
                self._owned[partition] = claim.offset
            self._unchecked |= claims.keys()
        self._log.info(
            "start_offsets",
            group_offsets={str(p): claim.offset for p, claim in sorted(claims.items())},
            checkpoint_offsets={str(p): self._reached[p] for p in sorted(claims) if p in self._reached},
        )

    def release(self, partitions: Set[TopicPartition], final: bool) -> Mapping[TopicPartition, int] | None:
        """Wait until what was planned of the partitions is done and stored; ``final`` gives that up."""
        with self._lock:
            self._leaving |= partitions
            busy = {p for p in partitions if p in self._in_flight or p in self._done}
            if busy and not final and not self._closing:
                return None
            done = {partition: self._done.pop(partition) for partition in partitions & self._done.keys()}
            given_up = {partition: self._in_flight.pop(partition) for partition in partitions & self._in_flight.keys()}
            self._leaving -= partitions
            for partition in partitions:
                self._owned.pop(partition, None)
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
        with self._lock:
            self._owned.clear()
            self._leaving.clear()
            # What is in flight stays so: should the partition come back meanwhile, its release waits for the batch.
            self._done.clear()

    def consumed(self) -> Mapping[TopicPartition, int]:
        """Nothing: offsets are stored when a batch is done, not by the clock."""
        return {}

    def fail(self, error: BaseException) -> None:
        """Have the query fail at its next trigger."""
        self._failure = error
