"""LeaderFinderThread: looks up the leaders of partitions whose leader is unknown.

Source: Kafka 1.1 ConsumerFetcherManager.LeaderFinderThread. Deliberate differences: no lock is held during a
request, and an error for one topic does not delay the other topics.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from tenacity import Retrying, retry_if_result, sleep_using_event, stop_when_event_set, wait_fixed

from zkconsumer.broker.error_codes import error_name
from zkconsumer.broker.leaders import LeaderLookup, no_leader_error
from zkconsumer.errors import ClosedError, RetriableError, ZkConsumerError
from zkconsumer.fetcher.fetch_settings import FATAL_ERROR_BACKOFF_S, FetchSettings
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.threads import OwnedThread

#: Maximum seconds that ``close`` waits for the thread to terminate.
_JOIN_TIMEOUT_S = 5.0


class LeaderFinderThread:
    """Looks up leaders while any are unknown, at most once every ``settings.refresh_leader_backoff_ms`` milliseconds.

    Args:
        name: thread name.
        settings: connection settings and back-off.
        brokers: function that returns the brokers, which are queried one after another.
        add_fetchers: function that is called with partitions and their leaders.
        shutdown_idle_fetchers: function that is called after each lookup.
        on_failure: function that is called for each partition without a leader after a non-retriable error.
    """

    def __init__(
        self,
        name: str,
        settings: FetchSettings,
        brokers: Callable[[], Sequence[Endpoint]],
        add_fetchers: Callable[[Mapping[PartitionTopicInfo, tuple[int, Endpoint]]], None],
        shutdown_idle_fetchers: Callable[[], None],
        on_failure: Callable[[PartitionTopicInfo, ZkConsumerError], None],
    ) -> None:
        self._backoff_s = settings.refresh_leader_backoff_ms / 1000
        self._brokers = brokers
        self._add_fetchers = add_fetchers
        self._shutdown_idle_fetchers = shutdown_idle_fetchers
        self._on_failure = on_failure
        self._log = get_logger("zkconsumer.leader_finder")
        self._lookup = LeaderLookup(settings.connecting)
        self._lock = threading.Lock()
        self._no_leader: dict[TopicPartition, PartitionTopicInfo] = {}  # guarded by the lock
        self._changed = threading.Event()
        self._stop = threading.Event()
        self._retrying = Retrying(
            retry=retry_if_result(bool),
            wait=wait_fixed(self._backoff_s),
            sleep=sleep_using_event(self._stop),
            stop=stop_when_event_set(self._stop),
            retry_error_callback=lambda _state: None,  # called only while the thread is being stopped
        )
        self._thread = OwnedThread(self._run, name, self._report_crash)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and abort its current request."""
        self._stop.set()
        self._changed.set()
        self._lookup.close()
        self._thread.join(_JOIN_TIMEOUT_S)

    def add_no_leader_partitions(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Start looking up the leaders of partitions."""
        with self._lock:
            self._no_leader.update({info.partition: info for info in infos})
        self._changed.set()

    def remove_no_leader_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop looking up the leaders of partitions."""
        with self._lock:
            for partition in partitions:
                self._no_leader.pop(partition, None)

    @property
    def no_leader_partitions(self) -> set[TopicPartition]:
        """Partitions whose leader is unknown."""
        with self._lock:
            return set(self._no_leader)

    # ---- run by the leader finder thread ----

    def _run(self) -> None:
        while not self._stop.is_set():
            self._changed.wait()
            self._changed.clear()
            try:
                self._retrying(self._find_leaders)
            except Exception as error:  # otherwise, the partitions would stall silently (KAFKA-4384)
                self._report_crash(error)
                self._changed.set()
            # Back off: if a broker rejects fetches, the fetcher returns the partitions to this thread immediately.
            self._stop.wait(self._backoff_s)

    def _report_crash(self, error: BaseException) -> None:
        self._log.error("leader_finder_crashed", exc_info=error)
        with self._lock:
            infos = list(self._no_leader.values())
        for info in infos:
            failure = ZkConsumerError(f"failed to find the leader of {info.partition}: {error!r}")
            failure.__cause__ = error
            self._on_failure(info, failure)

    def _find_leaders(self) -> bool:
        """Look up leaders once, and start fetching from them; return whether any partition still has no leader."""
        with self._lock:
            infos = dict(self._no_leader)
        if self._stop.is_set():
            return False
        if infos:
            try:
                found = self._lookup.look_up(self._brokers(), infos)
                self._record_problems({infos[partition]: code for partition, code in found.errors.items()})
                self._assign(infos, found.leaders)
            except ClosedError:
                return False
            except RetriableError as error:
                self._log.warning("leader_lookup_failed", partition_count=len(infos), error=str(error), retriable=True)
                for info in infos.values():
                    info.record_problem("leader_not_found", error)
            except ZkConsumerError as error:  # not retriable, such as failed authentication
                self._log.error("leader_lookup_failed", partition_count=len(infos), error=str(error), retriable=False)
                for info in infos.values():
                    info.record_problem("leader_not_found", error)
                    self._on_failure(info, error)
                self._stop.wait(FATAL_ERROR_BACKOFF_S)
        self._shutdown_idle_fetchers()
        with self._lock:
            return bool(self._no_leader)

    def _record_problems(self, errors: Mapping[PartitionTopicInfo, int]) -> None:
        """Record why partitions have no leader, and log each new reason once."""
        new: dict[int, list[str]] = {}
        for info, code in errors.items():
            if info.record_problem("leader_not_found", no_leader_error(code, info.partition)):
                new.setdefault(code, []).append(str(info.partition))
        for code, partitions in new.items():
            self._log.warning(
                "partitions_without_leader", partitions=sorted(partitions), error=error_name(code), error_code=code
            )

    def _assign(
        self,
        infos: Mapping[TopicPartition, PartitionTopicInfo],
        leaders: Mapping[TopicPartition, tuple[int, Endpoint]],
    ) -> None:
        """Pass the partitions with a leader to their fetchers, unless they were removed in the meantime."""
        with self._lock:
            assigned = {
                info: leaders[partition]
                for partition, info in infos.items()
                if partition in leaders and self._no_leader.get(partition) is info
            }
            for info in assigned:
                del self._no_leader[info.partition]
        try:
            self._add_fetchers(assigned)
        except BaseException:
            with self._lock:
                for info in assigned:
                    self._no_leader.setdefault(info.partition, info)
            raise
