"""ZKRebalancerListener: the one thread of a member that talks to ZooKeeper, rebalances and commits.

Everything that happens comes to it through one queue: watches that fired, changes of the session, and work
that other threads hand in. So a commit never runs beside a rebalance, and no lock is held during either.

Source: Kafka 1.1 ZookeeperConsumerConnector.ZKRebalancerListener, ZKSessionExpireListener,
ZKTopicPartitionChangeListener. Different on purpose: partitions that stay assigned are kept, the claim comes
before the offsets are read, a blocked claim waits for the owner's znode to go, and it never gives up.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from zkconsumer.broker.cluster import Cluster
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import (
    ClosedError,
    ConsumerRebalanceFailedError,
    OwnershipLostError,
    RetriableError,
    ZkConsumerError,
    ZooKeeperUnavailableError,
)
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.base import Offsets
from zkconsumer.rebalance.assignors import Assignment
from zkconsumer.rebalance.callbacks import CallbackRunner, ConsumerRebalanceListener
from zkconsumer.rebalance.context import AssignmentContext
from zkconsumer.rebalance.ownership import Conflict, Ownership
from zkconsumer.zookeeper.registry import GroupPaths, Registration
from zkconsumer.zookeeper.session import Event, ZooKeeperSession


@dataclass(frozen=True, slots=True)
class Claim:
    """A partition that was gained: for which thread id, and the group's offset (-1 where it has none)."""

    thread_id: str
    offset: int


class PartitionHandler(Protocol):
    """What a member does with its partitions; all methods are called in the member's thread."""

    #: Seconds that ``release`` may return None for.
    release_timeout: float

    def acquire(self, claims: Mapping[TopicPartition, Claim]) -> None:
        """Begin with partitions that are owned from now on."""

    def release(self, partitions: Set[TopicPartition], final: bool) -> Mapping[TopicPartition, int] | None:
        """Stop delivering from partitions that go to others, and return the offsets to commit.

        None asks for patience: it is called again when something happened, and with ``final`` once
        ``release_timeout`` is over; then nothing but offsets may be returned.
        """

    def lose(self) -> None:
        """Stop delivering at once: the session that held the partitions has, or may have, ended."""

    def consumed(self) -> Mapping[TopicPartition, int]:
        """Return what the periodic commit shall store."""

    def fail(self, error: BaseException) -> None:
        """Tell the user: the member's thread met an error that it has no answer to, and ended."""


@dataclass(frozen=True, slots=True)
class _Work:
    """Something that another thread wants done here."""

    function: Callable[[], Any]
    result: Future[Any]


#: Seconds that a member which leaves tries to store its offsets again.
_LEAVE_RETRIES = 5.0

_STOP = object()
_WAKE = object()


class ZKRebalancerListener:
    """Keeps a member registered, balanced and committed, until it is closed.

    Only its thread writes its fields, ``assignment`` is replaced as a whole, and any thread may read that.

    Args:
        commit_interval: seconds between periodic commits of ``handler.consumed()``; None for none.
        user_listener: told of each rebalance.
        on_rebalance: told the seconds that each try took.
        patience: seconds that the first rebalance may take where that is more than a JVM member would try for.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        registration: Registration,
        session: ZooKeeperSession,
        cluster: Cluster,
        offsets: Offsets,
        handler: PartitionHandler,
        events: queue.SimpleQueue[Any],
        *,
        commit_interval: float | None,
        user_listener: ConsumerRebalanceListener | None = None,
        on_rebalance: Callable[[float], object] = float,
        patience: float = 0.0,
    ) -> None:
        self.assignment: Assignment = {}
        self.group_assignment: Assignment = {}  #: who shall own what in the group, as the last rebalance found
        self.rebalances = 0
        self.unbalanced_since: float | None = None
        self._config = config
        self._consumer_id = consumer_id
        self._registration = registration
        self._session = session
        self._cluster = cluster
        self.offsets = offsets  #: replaced in the member's thread
        self._handler = handler
        self._events = events
        self._commit_interval = commit_interval
        self._on_rebalance = on_rebalance
        self._patience = patience
        self._paths = GroupPaths(config.group_id)
        self._ownership = Ownership(session, self._paths, consumer_id)
        self._context = AssignmentContext(config, consumer_id, registration, session, cluster)
        self._callbacks: CallbackRunner | None = None
        if user_listener is not None:
            self._callbacks = CallbackRunner(
                user_listener,
                f"zkconsumer-{config.group_id}-listener-{consumer_id}",
                timeout_s=config.rebalance_max_retries * config.rebalance_backoff,
                wait=self._attend,
                wake=self.wake,
            )
        #: The group's assignment that the user's listener was told of last.
        self._told: Assignment = {}
        self._log = get_logger("zkconsumer.rebalance", group=config.group_id, consumer=consumer_id)
        #: Given up by the handler, but not yet in ZooKeeper, with the offsets to commit.
        self._given_up: dict[TopicPartition, int] = {}
        #: Owner znodes that may be this member's beside those of ``assignment``: a claim that was not followed by an
        #: acquisition, or whose answer was lost, and what was given up when the session ended, or might have.
        self._leftover: set[TopicPartition] = set()
        self._registered_session = 0
        self._refused_since: float | None = None  # since when offsets of what goes cannot be stored
        self._stopping = False
        self._attended = False  # whether the queue is read
        self._rebalance_at: float | None = 0.0
        self._commit_at = time.monotonic() + commit_interval if commit_interval else None
        self._poll_at: float | None = None
        self._attempt = 0
        self._first: Future[None] = Future()
        self._started = 0.0
        self._thread = threading.Thread(
            target=self._run, name=f"zkconsumer-{config.group_id}-rebalance-{consumer_id}", daemon=True
        )

    # ---- for other threads ----

    def start(self) -> None:
        """Start the thread, wait until the member is registered and balanced for the first time.

        Raises:
            ConsumerRebalanceFailedError: ``rebalance.max.retries`` tries failed, and a session timeout has passed
                in which znodes of crashed members vanish, and all the time that a JVM member would try for, and
                this member's patience, where trying again may help.
        """
        self._started = time.monotonic()
        if self._stopping:
            raise ClosedError("the consumer was shut down")
        self._attended = True
        self._thread.start()
        self._first.result()

    def close(self, timeout: float) -> None:
        """Release and commit everything, unregister, and end the thread, within ``timeout`` seconds."""
        self._events.put(_STOP)
        if not self._thread.is_alive():
            self._stopping = True
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout)
            if self._thread.is_alive():
                self._log.warning("leave_timed_out", seconds=timeout, owned=len(self.assignment))

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Run ``function`` in the member's thread."""
        work = _Work(function, Future())
        self._events.put(work)
        if not self._attended:
            self._refuse_waiting_work()
        return work.result

    def wake(self) -> None:
        """Have a release that is being waited for asked about again."""
        self._events.put(_WAKE)

    def commit(self, offsets: Mapping[TopicPartition, int], *, may_go_back: bool = False) -> dict[TopicPartition, int]:
        """Store offsets of owned partitions, in the member's thread; returns what is stored now.

        Raises:
            OwnershipLostError: one of the partitions is not owned (any more).
        """
        foreign = sorted(offsets.keys() - self.assignment.keys())
        if foreign:
            raise OwnershipLostError(
                f"partition {foreign[0]} is not owned by {self._consumer_id} (any more); its offset "
                f"{offsets[foreign[0]]} is not committed, and its next owner starts from the last committed one"
            )
        self.check_session()
        return self.offsets.commit(offsets, may_go_back=may_go_back)

    # ---- the thread ----

    def check_session(self) -> None:
        """Refuse to store anything in another session than the one that holds the owner znodes.

        kazoo may have begun it already while the event of the old one's end still waits in the queue.
        """
        session = self._session.session_id
        if not session:
            raise self._session.not_connected()
        if self.assignment and session != self._registered_session:
            raise OwnershipLostError("the ZooKeeper session has ended; nothing is stored before the member is back")

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._wait(self._sleep())
                self._look_at_clock()
            self._leave()
        except BaseException as error:
            self._log.error("member_failed", exc_info=True)
            self._handler.lose()
            self.assignment = {}
            self._session.close()  # a member that nobody attends to must not hold anything
            self._handler.fail(error)
            if not self._first.done():
                self._first.set_exception(error)
        finally:
            if not self._first.done():
                self._first.set_exception(ClosedError("the consumer was shut down during its first rebalance"))
            self._stopping, self._attended = True, False
            self._refuse_waiting_work()

    def _refuse_waiting_work(self) -> None:
        while True:
            try:
                item = self._events.get_nowait()
            except queue.Empty:
                return
            if isinstance(item, _Work) and item.result.set_running_or_notify_cancel():
                item.result.set_exception(ClosedError("the consumer is shut down; nothing is committed any more"))

    def _sleep(self) -> float | None:
        now = time.monotonic()
        times = [at for at in (self._rebalance_at, self._commit_at, self._poll_at) if at is not None]
        if self._registered_session:
            times.append(now + self._session.lapses_in)
        return max(0.0, min(times) - now) if times else None

    def _wait(self, timeout: float | None) -> None:
        """Take in what comes within ``timeout`` seconds, all that is there at once."""
        try:
            item = self._events.get(timeout=timeout)
            while True:
                self._take(item)
                item = self._events.get_nowait()
        except queue.Empty:
            pass

    def _attend(self, timeout: float) -> None:
        """Wait in the middle of a rebalance, with an eye on the session."""
        self._wait(min(timeout, self._session.lapses_in) if self._registered_session else timeout)
        self._check_lease()

    def _take(self, item: Any) -> None:
        if item is _STOP:
            self._stopping = True
        elif isinstance(item, _Work):
            if item.result.set_running_or_notify_cancel():
                try:
                    item.result.set_result(item.function())
                except BaseException as error:
                    item.result.set_exception(error)
        elif isinstance(item, Event):
            self._log.debug("zookeeper_event", kind=item.kind, path=item.path)
            if item.kind == "lost":
                self._lose("session_expired")
            if item.kind != "suspended":
                self._rebalance_at = time.monotonic()

    def _look_at_clock(self) -> None:
        if self._stopping:
            return
        if self._session.is_refused:
            raise self._session.refusal()  # kazoo does not try again
        self._check_lease()
        now = time.monotonic()
        if self._poll_at is not None and now >= self._poll_at:
            self._poll_at, self._rebalance_at = None, now
        if self._rebalance_at is not None and now >= self._rebalance_at:
            self._rebalance_at = None
            self._synced_rebalance()
        if self._commit_at is not None and now >= self._commit_at:
            assert self._commit_interval is not None
            self._commit_at = now + self._commit_interval
            self._auto_commit()

    def _check_lease(self) -> None:
        """Give up what is owned once the session may have expired, and register again.

        The connection may be alive after the process was suspended, so there may be no event that leads to it.
        """
        if self._registered_session and self._session.lapses_in == 0.0:
            self._lose("session_may_have_expired")
            self._rebalance_at = time.monotonic()

    def _lose(self, reason: str) -> None:
        """Forget what is owned: the znodes are gone, or not ours to count on."""
        self._log.warning(reason, owned=len(self.assignment), session=f"{self._registered_session:#x}")
        self._handler.lose()
        self.offsets.forget(self.assignment)
        self._leftover |= self.assignment.keys()
        self.assignment = {}
        self._given_up = {}
        self._told = {}
        self._registered_session = 0

    def _auto_commit(self) -> None:
        consumed = self._handler.consumed()
        offsets = {partition: offset for partition, offset in consumed.items() if partition in self.assignment}
        try:
            self.check_session()
            self.offsets.commit(offsets)
        except ZkConsumerError as error:
            # Nothing is lost: the next one stores more.
            self._log.warning("auto_commit_failed", error=str(error))

    def _synced_rebalance(self) -> None:
        """Try once; schedule the next try where it fails."""
        started = time.monotonic()
        self._attempt += 1
        try:
            conflict = self._rebalance()
        except ZkConsumerError as error:
            self._failed(error)
            return
        except Exception as error:  # what nobody thought of must not end the member
            self._log.error("rebalance_failed_unexpectedly", exc_info=True)
            failure = ZkConsumerError(f"the rebalance failed: {error!r}")
            failure.__cause__ = error
            self._failed(failure)
            return
        finally:
            self._on_rebalance(time.monotonic() - started)
        if self._stopping:
            return
        if conflict is not None:
            self._failed(self._blocked(conflict))
            return
        if self._commit_interval is not None:
            self._auto_commit()  # as the original does: members often end in a row, and one that is killed repeats less
        self._attempt = 0
        self.rebalances += 1
        self.unbalanced_since = None
        self._poll_at = started + self._cluster.poll_interval if self._cluster.poll_interval else None
        if not self._first.done():
            self._first.set_result(None)

    def _blocked(self, conflict: Conflict) -> ZkConsumerError:
        try:
            mismatch = self._context.find_strategy_mismatch()
        except ZkConsumerError:
            mismatch = None  # the next attempt raises the same error
        if mismatch is not None:
            self._log.error("assignment_strategy_mismatch", path=conflict.path, error=mismatch)
            return RetriableError(f"{conflict}: {mismatch}")  # retriable: a rebalance in progress can look like this
        return RetriableError(f"{conflict}; waiting for it to be released")

    def _failed(self, error: ZkConsumerError) -> None:
        now = time.monotonic()
        retries = self._config.rebalance_max_retries
        is_round = self._attempt % retries == 0  # it may go on for minutes
        (self._log.error if is_round else self._log.info)("rebalance_failed", attempt=self._attempt, error=str(error))
        if self.unbalanced_since is None:  # after the log: who sees this finds the reason there
            self.unbalanced_since = now
        if self._attempt >= retries and not self._first.done() and now - self._started >= self._patience_with(error):
            failure = ConsumerRebalanceFailedError(
                f"{self._consumer_id} can't rebalance after {self._attempt} retries: {error}; it has tried for "
                f"{now - self._started:.0f} s (rebalance.max.retries; of a query, unavailable.timeout.ms)"
            )
            failure.__cause__ = error
            self._first.set_exception(failure)
        # Members of a group that got into each other's way must not try again in step.
        self._rebalance_at = now + self._config.rebalance_backoff * random.uniform(0.5, 1.0)

    def _patience_with(self, error: ZkConsumerError) -> float:
        session, retries = self._config.zookeeper_session_timeout_ms / 1000, self._config.rebalance_max_retries
        least = max(session, retries * self._config.rebalance_backoff)
        return max(least, self._patience) if isinstance(error, (RetriableError, OwnershipLostError)) else least

    def _rebalance(self) -> Conflict | None:
        """Make what is owned what the group's members and the topics' partitions ask for.

        Returns:
            None, or the owner znode of another member that is in the way; its end is watched for.
        """
        if not self._session.is_connected:
            raise self._session.not_connected()
        self._session.renew()  # first, so that the lease covers what is claimed below
        if (conflict := self._register()) is not None:
            return conflict
        if unheld := self._ownership.missing(self.assignment):
            self._log.warning("owner_znodes_deleted", partitions=[str(p) for p in sorted(unheld)])
            self._handler.release(unheld, True)
            self.offsets.forget(unheld)
            self.assignment = {p: thread for p, thread in self.assignment.items() if p not in unheld}
            self._told = {}
            self._given_up = {p: offset for p, offset in self._given_up.items() if p not in unheld}
        # One for the whole rebalance: JVM members, which may wait for several releases, do not try for ever.
        deadline = time.monotonic() + self._handler.release_timeout
        while not self._stopping:
            assignment = self._context.assignment()
            wanted = self._context.own_part(assignment)
            gone = {partition for partition, thread in self.assignment.items() if wanted.get(partition) != thread}
            gone |= self._given_up.keys()
            if gone:
                self._release(gone, deadline)
                continue  # that may have taken a while: look again
            if unwanted := self._leftover - wanted.keys():
                self._ownership.release(unwanted)
                self._leftover -= unwanted
            gained = {partition: thread for partition, thread in wanted.items() if partition not in self.assignment}
            if gained:
                if self._session.session_id != self._registered_session:
                    raise RetriableError("the ZooKeeper session has changed; the member registers anew")
                self._leftover |= gained.keys()
                conflict = self._ownership.claim(gained)
                if conflict is not None:
                    if not self._session.exists(conflict.path, watch=True):
                        continue
                    return conflict
            self._tell(assignment)
            self.group_assignment = assignment
            if gained:
                self._acquire(gained)
                self._leftover -= gained.keys()
            return None
        return None

    def _register(self) -> Conflict | None:
        session = self._session.session_id
        if self._registered_session == session and self._session.exists(self._ownership.registration_path):
            return None
        if (conflict := self._ownership.register(self._registration)) is not None:
            return conflict
        if self._config.offsets_commit_unchanged:
            for path in self._paths.subtrees:
                self._session.ensure(path)
        self._registered_session = session
        self._log.info("registered", session=f"{session:#x}")
        return None

    def _tell(self, assignment: Assignment) -> None:
        """Let the user's listener know of a new assignment; what this member has of it is claimed."""
        if self._callbacks is None or assignment == self._told:
            return
        by_topic: dict[str, dict[int, str]] = {}
        for (topic, number), thread in sorted(assignment.items()):
            by_topic.setdefault(topic, {})[number] = thread
        self._callbacks.before_starting_fetchers(self._consumer_id, by_topic)
        self._told = assignment
        if self._session.session_id != self._registered_session:
            raise RetriableError("the ZooKeeper session has changed; the member registers anew")

    def _acquire(self, gained: Assignment) -> None:
        offsets = self.offsets.fetch(gained)
        self.assignment = {**self.assignment, **gained}
        self._log.info("partitions_acquired", partitions=[str(p) for p in sorted(gained)], owned=len(self.assignment))
        self._handler.acquire({partition: Claim(thread, offsets[partition]) for partition, thread in gained.items()})

    def _release(self, gone: Set[TopicPartition], deadline: float) -> None:
        """Hand partitions over: their records stop, their offsets are stored, their owner znodes go."""
        while delivering := gone - self._given_up.keys():
            left = deadline - time.monotonic()
            offsets = self._handler.release(delivering, left <= 0)
            if offsets is not None:
                self._given_up.update({partition: offsets.get(partition, -1) for partition in delivering})
                break
            self._attend(max(0.0, left))
            if not gone <= self.assignment.keys():
                return  # the session ended while we waited
        self.check_session()
        self._store({partition: self._given_up[partition] for partition in gone if self._given_up[partition] >= 0})
        if self._callbacks is not None and not self._stopping:  # the original does not call it at its end either
            by_topic: dict[str, set[int]] = {}
            for topic, number in gone:
                by_topic.setdefault(topic, set()).add(number)
            self._callbacks.before_releasing_partitions(by_topic)
            if not gone <= self.assignment.keys():
                return
        self._ownership.release(gone)
        self.offsets.forget(gone)
        for partition in gone:
            del self._given_up[partition]
        self.assignment = {p: thread for p, thread in self.assignment.items() if p not in gone}
        self._log.info("partitions_released", partitions=[str(p) for p in sorted(gone)], owned=len(self.assignment))

    def _store(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store what was consumed of partitions that go; what is refused for good must not hold up the others."""
        try:
            self.offsets.commit(offsets)
        except ZooKeeperUnavailableError:
            raise
        except ZkConsumerError as error:
            now = time.monotonic()
            if self._refused_since is None:
                self._refused_since = now
            patience = self._config.rebalance_max_retries * self._config.rebalance_backoff
            if isinstance(error, RetriableError) and now < self._refused_since + patience:
                raise
            for partition, offset in offsets.items():
                try:
                    self.offsets.commit({partition: offset})
                except ZooKeeperUnavailableError:
                    raise
                except ZkConsumerError as refusal:
                    self._log.error("offset_not_stored", partition=str(partition), offset=offset, error=str(refusal))
        self._refused_since = None

    def _leave(self) -> None:
        """Hand everything over, and unregister."""
        give_up_at = time.monotonic() + self._handler.release_timeout + _LEAVE_RETRIES
        try:
            while self.assignment and self._session.is_connected:
                try:
                    self._release(set(self.assignment), time.monotonic() + self._handler.release_timeout)
                except RetriableError as error:
                    if time.monotonic() > give_up_at:
                        raise
                    self._log.info("leave_tried_again", error=str(error))
                    self._wait(self._config.offsets_channel_backoff_ms / 1000)
            if self._session.is_connected:
                self._ownership.unregister()
        except ZkConsumerError as error:
            # The session ends with the process at the latest, and with it every znode of this member.
            self._log.warning("leave_incomplete", error=str(error))
        finally:
            self._handler.lose()
            self.assignment = {}
