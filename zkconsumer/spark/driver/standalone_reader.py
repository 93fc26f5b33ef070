"""StandaloneReader: all partitions of a subscription, for a query that joins no group (``membership=none``).

It has the calls of ``GroupMember``, so that a query is planned alike: partitions that appear are acquired, those that
vanish are released, and the group's offsets are read and stored where that is asked for; nobody else is told of it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from zkconsumer.broker.cluster import cluster_of
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ClosedError, RetriableError, ZkConsumerError, ZooKeeperUnavailableError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.zookeeper import ZooKeeperOffsets
from zkconsumer.rebalance.handler import Claim, PartitionHandler
from zkconsumer.spark.options.subscription import Subscription
from zkconsumer.zookeeper.session import ZooKeeperSession

#: What the thread id of a partition would be.
_NOBODY = "nobody"

_STOP = object()


class StandaloneReader:
    """Has all partitions; one thread looks for them and stores offsets.

    Args:
        handler: its methods are called in that thread.
        offsets: whether the group's offsets are read, and stored.
        patience: seconds that brokers may be out of reach at the start.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        handler: PartitionHandler,
        *,
        offsets: bool,
        patience: float,
    ) -> None:
        self.consumer_id = f"{config.group_id}_nobody"
        self.assignment: dict[TopicPartition, str] = {}
        self.rebalances = 0
        self.metadata_refreshes = 0  #: how often partitions were looked for
        self.unbalanced_since: float | None = None
        self._config = config
        self._subscription = subscription
        self._handler = handler
        self._patience = patience
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._session: ZooKeeperSession | None = None
        self._offsets: ZooKeeperOffsets | None = None
        if offsets or not config.bootstrap_servers:
            self._session = ZooKeeperSession.of(config, self._events)
            if offsets:
                self._offsets = ZooKeeperOffsets(self._session, config.group_id)
        self.cluster = cluster_of(config, self._session, config.socket_timeout_ms / 1000)
        self._first: Future[None] = Future()
        self._give_up_at = 0.0
        self._log = get_logger("zkconsumer.spark", group=config.group_id)
        self._thread = threading.Thread(target=self._run, name=f"zkconsumer-{config.group_id}-discovery", daemon=True)

    @property
    def group_assignment(self) -> Mapping[TopicPartition, str]:
        """All partitions that there are."""
        return self.assignment

    def start(self, connect_within: float = 0.0) -> None:
        """Connect, and look for partitions.

        Args:
            connect_within: see ``ZooKeeperSession.start``.

        Raises:
            ZkConsumerError: ZooKeeper or the brokers could not be asked.
        """
        if self._session is not None:
            self._session.start(connect_within)
        self._give_up_at = time.monotonic() + self._patience
        self._thread.start()
        try:
            self._first.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the thread and close the connections."""
        self.cluster.close()  # first, since the thread may be waiting for an answer
        self._events.put(_STOP)
        if self._thread.is_alive():
            self._thread.join(self._config.connection_timeout)
        if self._session is not None:
            self._session.close()

    def wake(self) -> None:
        """Nobody waits for a release."""

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | Callable[[], Mapping[TopicPartition, int]],
        *,
        may_go_back: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, int]:
        """Store offsets of the group, and return what is stored now; see ``GroupMember.commit``."""

        def work() -> dict[TopicPartition, int]:
            wanted = dict(offsets() if callable(offsets) else offsets)
            return self._offsets.commit(wanted, may_go_back=may_go_back) if self._offsets is not None else wanted

        patience = self._config.connection_timeout if timeout is None else timeout
        result: Future[dict[TopicPartition, int]] = Future()
        self._events.put((work, result))
        try:
            return result.result(patience)
        except FutureTimeoutError as error:
            result.cancel()
            raise ZooKeeperUnavailableError(f"offsets were not stored within {patience:g} s") from error

    def _run(self) -> None:
        look_at: float | None = 0.0
        item: Any = None
        while item is not _STOP:
            if isinstance(item, tuple):
                self._work(*item)
            elif item is not None:
                look_at = 0.0  # an event of the session
            now = time.monotonic()
            if look_at is not None and now >= look_at:
                look_at = self._look_again()
            try:
                item = self._events.get(timeout=None if look_at is None else max(0.0, look_at - now))
            except queue.Empty:
                item = None
        while not self._events.empty():
            item = self._events.get()
            if isinstance(item, tuple) and item[1].set_running_or_notify_cancel():
                item[1].set_exception(ClosedError("the query is stopped; nothing is stored any more"))
        if not self._first.done():
            self._first.set_exception(ClosedError("the query was stopped while it started"))

    def _work(self, work: Callable[[], Any], result: Future[Any]) -> None:
        if result.set_running_or_notify_cancel():
            try:
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)

    def _look_again(self) -> float | None:
        """Look for partitions; returns when to do so next, None for at the next event."""
        try:
            self._look()
        except BaseException as error:
            retriable = isinstance(error, RetriableError) and time.monotonic() < self._give_up_at
            if not self._first.done() and not retriable:
                self._first.set_exception(error)
                return None
            if not isinstance(error, ZkConsumerError):
                self._handler.fail(error)
                return None
            if self.unbalanced_since is None:
                self.unbalanced_since = time.monotonic()
                self._log.warning("partitions_not_found", error=str(error))
            return time.monotonic() + self._config.rebalance_backoff
        self.unbalanced_since = None
        if not self._first.done():
            self._first.set_result(None)
        interval = self.cluster.poll_interval
        return None if interval is None else time.monotonic() + interval

    def _look(self) -> None:
        found = self._subscription.partitions(self.cluster, self._config.exclude_internal_topics)
        if gone := self.assignment.keys() - set(found):
            self._handler.release(gone, True)
        new = [partition for partition in found if partition not in self.assignment]
        stored = self._offsets.fetch(new) if self._offsets is not None and new else {}
        self.assignment = dict.fromkeys(found, _NOBODY)
        if new:
            self._handler.acquire({partition: Claim(_NOBODY, stored.get(partition, -1)) for partition in new})
        self.metadata_refreshes += 1
        self.rebalances += bool(new or gone)
