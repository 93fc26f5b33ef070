"""What a query knows of its partitions: which are owned, where each goes on, and what is planned, in flight and done.

Two threads call it, Spark's, which plans, and the member's, which claims and hands over. Each method is one step
under the lock, and asks nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

from zkconsumer.broker import protocol
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.handler import Claim
from zkconsumer.spark.offset import Ranges, from_offset, known_by, reached_by, total
from zkconsumer.spark.options.starting_offsets import StartingOffsets, StartPosition

#: The source of a beginning that is looked for because records are gone.
_LOST = "records lost"


class PartitionTracker:
    """The partitions of one query.

    A partition that is claimed waits until ``begun`` says where it begins; then batches are planned of it. One that
    another member wants is planned no more, and is let go once its batch is done and stored.

    Args:
        commits: whether the group's offsets are stored.
    """

    def __init__(self, starts: StartingOffsets, *, commits: bool) -> None:
        self._starts = starts
        self._commits = commits
        self._lock = threading.Lock()
        self._owned: dict[TopicPartition, int] = {}  # the group's offset, as far as it is known here
        self._begins: dict[
            TopicPartition, StartPosition
        ] = {}  # claimed, and where to begin is not looked up and checked yet
        self._positions: dict[TopicPartition, int] = {}  # where the next batch begins
        self._leaving: set[TopicPartition] = set()
        self._reached: dict[TopicPartition, int] = {}  # where this query's batches ended so far
        self._met: set[TopicPartition] = set()  # claimed once since the start
        self._fresh = True  # no checkpoint, and nothing was claimed yet
        self._known: set[TopicPartition] = set()  # partitions that existed when it was looked last
        self._in_flight: Ranges = {}  # planned, and not known to be done
        self._done: dict[TopicPartition, int] = {}  # done, and not stored yet

    # ---- what there is ----

    def owned(self) -> set[TopicPartition]:
        """Return the partitions that are owned."""
        with self._lock:
            return set(self._owned)

    def is_moving(self, gone: Collection[str]) -> bool:
        """Whether another member waits for a partition, or one that was gained has not begun yet.

        Args:
            gone: topics that are not there.
        """
        with self._lock:
            return bool(self._leaving) or any(partition.topic not in gone for partition in self._begins)

    def is_settled(self) -> bool:
        """Whether all that is done is stored."""
        with self._lock:
            return not self._done

    def has_gone_on(self) -> bool:
        """Whether the query has had batches, in this run or before."""
        with self._lock:
            return bool(self._reached)

    def topics(self) -> set[str]:
        """Return the topics that the query has read of, or is about to."""
        with self._lock:
            return {partition.topic for partition in self._reached.keys() | self._begins.keys()}

    def positions(self, gone: Collection[str]) -> dict[TopicPartition, int]:
        """Return where the next batch begins in each partition that it may have.

        Args:
            gone: topics that are not there.
        """
        with self._lock:
            return {p: offset for p, offset in self._positions.items() if not self._is_out(p, gone)}

    def behind(self, ends: Mapping[TopicPartition, int]) -> list[int]:
        """Return how many offsets before the ends of the logs the query's batches ended."""
        with self._lock:
            return [max(0, end - self._reached.get(partition, end)) for partition, end in ends.items()]

    # ---- the life of a batch ----

    def note(self, offset: Mapping[str, Any]) -> None:
        """Take note of an offset from Spark's log: its ranges are this query's, done or not."""
        with self._lock:
            known = known_by(offset)
            self._known |= known
            self._fresh = self._fresh and not known
            for partition, until in reached_by(offset).items():
                self._reach(partition, until)

    def plan(
        self, ranges: Ranges, gone: Collection[str]
    ) -> tuple[Ranges, set[TopicPartition], dict[TopicPartition, int]]:
        """Plan a batch.

        Returns:
            the ranges that it has, none where they would be empty, since what has been taken away meanwhile is not
            ours to plan; all partitions that are known; and where earlier batches ended in other ones.
        """
        with self._lock:
            ranges = {p: span for p, span in ranges.items() if p in self._positions and not self._is_out(p, gone)}
            if not total(ranges):
                return {}, set(), {}
            for partition, (start, until) in ranges.items():
                self._reached[partition] = self._positions[partition] = until
                if start < until:
                    self._in_flight[partition] = (start, until)
            before = {partition: reached for partition, reached in self._reached.items() if partition not in ranges}
            return ranges, set(self._known), before

    def put_in_flight(self, ranges: Ranges) -> None:
        """Record a batch that is about to run: a new one, or one that is replayed after a restart.

        After a replayed batch, planning continues at its end. A partition whose group offset is outside the batch was
        moved by another member or by a tool; there ``restart.from`` decides.
        """
        with self._lock:
            for partition, (start, until) in ranges.items():
                begin = self._begins.get(partition)
                if begin is not None and begin.source == "group" and start <= begin.offset <= until:
                    self._begins[partition] = StartPosition("checkpoint", until)
                self._met.add(partition)
                if start < until and self._owned.get(partition, until) < until:
                    self._in_flight[partition] = (start, until)

    def acknowledge(self, offset: Mapping[str, Any]) -> int:
        """Take note of a batch that is done; returns of how many partitions there is something to store."""
        with self._lock:
            for partition, (start, until) in from_offset(offset).items():
                if self._was_set_back(partition, start, until):
                    continue
                flying = self._in_flight.get(partition)
                if flying is not None and flying[1] <= until:
                    del self._in_flight[partition]
                self._reach(partition, until)
                if self._commits and partition in self._owned and until > self._owned[partition]:
                    self._done[partition] = max(until, self._done.get(partition, -1))
            return len(self._done)

    def to_store(self) -> dict[TopicPartition, int]:
        """Return the offsets to store for the group: of what is done, and owned still."""
        with self._lock:
            return {partition: until for partition, until in self._done.items() if partition in self._owned}

    def stored(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Take note of what is stored now; returns whether another member waits for a partition."""
        with self._lock:
            for partition, offset in offsets.items():
                if partition in self._owned:
                    self._owned[partition] = max(offset, self._owned[partition])
                if self._done.get(partition, -1) <= offset:
                    self._done.pop(partition, None)
            return bool(self._leaving)

    # ---- where partitions begin ----

    def begins(self, gone: Collection[str]) -> dict[TopicPartition, StartPosition]:
        """Return the partitions for which it is to be found out."""
        with self._lock:
            return {p: begin for p, begin in self._begins.items() if not self._is_out(p, gone)}

    def still(self, begins: Mapping[TopicPartition, StartPosition]) -> set[TopicPartition]:
        """Return those of them that have not been lost, or gained anew, since they were returned."""
        with self._lock:
            return self._still(begins)

    def begun(self, begins: Mapping[TopicPartition, StartPosition], offsets: Mapping[TopicPartition, int]) -> None:
        """Let partitions begin at the offsets that were found."""
        with self._lock:
            for partition in self._still(begins):
                del self._begins[partition]
                self._positions[partition] = offsets[partition]
                if begins[partition].source != "checkpoint":
                    self._owned[partition] = offsets[partition]

    def begin_topics_anew(self, topics: Collection[str]) -> None:
        """Begin where the logs begin, and forget what was read before: the topics are others now."""
        with self._lock:
            self._known -= {partition for partition in self._known if partition.topic in topics}
            for partition in [p for p in self._reached if p.topic in topics]:
                del self._reached[partition]
                self._met.discard(partition)
            for partition in [p for p in self._owned if p.topic in topics]:
                self._begin_anew(partition)

    def begin_partitions_anew(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin where the logs of partitions begin: they end before the positions."""
        with self._lock:
            for partition in partitions:
                if partition in self._positions and partition not in self._leaving:
                    self._begin_anew(partition)
                    self._reached.pop(partition, None)

    # ---- what the group says ----

    def acquire(self, claims: Mapping[TopicPartition, Claim], known: Set[TopicPartition]) -> None:
        """Own partitions from now on.

        Args:
            known: partitions that exist beside them.
        """
        with self._lock:
            for partition, claim in claims.items():
                reached = self._reached.get(partition)
                if partition in self._met and reached is not None:  # another member may have had it since
                    self._begins[partition] = StartPosition("checkpoint", max(reached, claim.offset))
                else:
                    self._begins[partition] = self._starts.begin(
                        partition,
                        claim.offset,
                        reached=reached,
                        fresh=self._fresh,
                        new=partition not in self._known,
                    )
                self._owned[partition] = claim.offset
            self._met |= claims.keys()
            self._known |= known | claims.keys()
            self._fresh = False

    def release(
        self, partitions: Set[TopicPartition], *, final: bool
    ) -> tuple[dict[TopicPartition, int], Ranges] | None:
        """Let partitions go, or None where that has to wait for what is in flight, or not stored.

        Args:
            final: do not wait.

        Returns:
            the offsets to store, and what was in flight.
        """
        with self._lock:
            self._leaving |= partitions
            if not final and any(p in self._in_flight or p in self._done for p in partitions):
                return None
            done = {partition: self._done.pop(partition) for partition in partitions & self._done.keys()}
            given_up = {partition: self._in_flight.pop(partition) for partition in partitions & self._in_flight.keys()}
            self._leaving -= partitions
            for partition in partitions:
                self._owned.pop(partition, None)
                self._begins.pop(partition, None)
                self._positions.pop(partition, None)
            return done, given_up

    def lose(self) -> None:
        """Own nothing until it is claimed again."""
        with self._lock:
            self._owned.clear()
            self._begins.clear()
            self._positions.clear()
            self._leaving.clear()
            # What is in flight stays so: should the partition come back meanwhile, its release waits for the batch.
            self._done.clear()

    # ---- within the lock ----

    def _is_out(self, partition: TopicPartition, gone: Collection[str]) -> bool:
        return partition in self._leaving or partition.topic in gone

    def _reach(self, partition: TopicPartition, until: int) -> None:
        self._reached[partition] = max(until, self._reached.get(partition, -1))

    def _still(self, begins: Mapping[TopicPartition, StartPosition]) -> set[TopicPartition]:
        return {partition for partition, begin in begins.items() if self._begins.get(partition) is begin}

    def _begin_anew(self, partition: TopicPartition) -> None:
        self._positions.pop(partition, None)
        self._done.pop(partition, None)
        self._begins[partition] = StartPosition(_LOST, timestamp=protocol.EARLIEST)

    def _was_set_back(self, partition: TopicPartition, start: int, until: int) -> bool:
        """Whether a partition went on before the end of a batch that is done, so that this must not be stored again."""
        begin = self._begins.get(partition)
        if begin is None:
            flying = self._in_flight.get(partition)
            if flying is not None:  # this very batch, one before it, or one behind it
                return not ((start, until) == flying or until <= flying[0] or flying[1] <= start)
            return self._positions.get(partition, until) < until
        return begin.source == _LOST or (begin.source == "group" and self._starts.restart == "group")
