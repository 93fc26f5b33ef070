"""Lets all sources of a query join the group before the first of them plans a batch.

Spark calls all sources of a query in one thread. If a source joined when Spark first requests an offset, the first
source would plan a batch with all partitions, and the second source would wait for partitions that are only released
after this batch. Therefore, a source joins when Spark requests its read limit: Spark does so for all sources, before it
requests the first offset. The checkpoint is not known at that time; see ``QueryMember.resume``.

Source: Spark 4.3 MicroBatchExecution.logicalPlan.
"""

from __future__ import annotations

import importlib
import math
import threading
import time
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING

from zkconsumer.errors import ClosedError, ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.rebalance.futures import complete_future
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.threads import WAKE_INTERVAL_S, OwnedThread

if TYPE_CHECKING:
    from zkconsumer.spark.planning.query_member import QueryMember

#: Maximum seconds for which ``start`` blocks the other sources of the query.
_WAIT_S = 10.0

#: Maximum seconds for ``close`` to wait until the member has left the group.
_LEAVE_TIMEOUT_S = 15.0


class EarlyJoin:
    """Joins the group in a thread, and holds the member until ``take`` is called.

    The member leaves the group if it is not taken within ``clusterUnavailableTimeout``: if a query fails while Spark
    prepares it, Spark does not stop its sources.

    Args:
        application: number of the Spark application, unique on this host.
    """

    def __init__(self, options: SourceOptions, application: int) -> None:
        self._options = options
        self._application = application
        self._joined: Future[QueryMember | None] = Future()
        self._lock = threading.Lock()  # guards _member and _is_over
        self._member: QueryMember | None = None
        self._is_over = False
        self._over = threading.Event()  # set after _is_over
        self._thread = OwnedThread(self._run, "zkconsumer-early-join", _log_crash)

    def start(self) -> None:
        """Join, and wait a limited time for the first assignment.

        Meanwhile, the calling thread imports the other modules that it needs to plan batches. The modules that both
        threads need are imported first, because kafka-python's modules import each other in cycles.
        """
        importlib.import_module("zkconsumer.spark.planning.query_member")
        self._thread.start()
        importlib.import_module("zkconsumer.spark.planning.factory")
        self._wait(time.monotonic() + _WAIT_S)

    def take(self, *, is_new: bool) -> QueryMember | None:
        """Wait for the first assignment, and return the member. Further calls return None.

        Args:
            is_new: whether the query has no checkpoint.

        Returns:
            The member; None if the caller must create one, because the member has left the group, or because a query
            with a checkpoint waits longer for ZooKeeper and the brokers.

        Raises:
            ZkConsumerError: a query without a checkpoint could not join.
        """
        self._wait(math.inf)
        if not self._end():
            return None
        if not is_new and isinstance(self._joined.exception(), ZkConsumerError):
            return None
        return self._joined.result()

    def close(self) -> None:
        """Leave the group, unless the member was taken, and wait for the thread."""
        if self._end():
            self._leave()
        self._thread.join(_LEAVE_TIMEOUT_S)

    def _wait(self, deadline: float) -> None:
        while not self._joined.done() and (remaining_s := deadline - time.monotonic()) > 0:
            wait([self._joined], min(remaining_s, WAKE_INTERVAL_S))

    def _run(self) -> None:
        complete_future(self._joined, self._join)
        if not self._over.wait(self._options.unavailable_timeout_s) and self._end():
            self._leave()

    def _join(self) -> QueryMember | None:
        from zkconsumer.spark.planning.query_member import QueryMember

        if not self._options.is_member:
            return None
        member = QueryMember(self._options, None, application=self._application)
        with self._lock:
            if self._is_over:
                raise ClosedError("the query was stopped before it had joined the group")
            self._member = member
        member.join()
        return member

    def _end(self) -> bool:
        """Record that the member is taken or leaves the group; return whether this is the first call."""
        with self._lock:
            is_first, self._is_over = not self._is_over, True
        self._over.set()
        return is_first

    def _leave(self) -> None:
        with self._lock:
            member = self._member
        if member is not None:
            member.close()


def _log_crash(error: BaseException) -> None:
    get_logger("zkconsumer.spark").error("early_join_failed", exc_info=error)
