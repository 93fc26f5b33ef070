"""LeaderFinderThread: moves partitions out of ``no_leader_partitions`` as soon as they have a leader.

Source: Kafka 1.1 ConsumerFetcherManager.LeaderFinderThread. Different on purpose: no lock is held while
brokers are asked, and one topic's trouble does not delay the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from tenacity import Retrying, retry_if_result, sleep_using_event, stop_when_event_set, wait_fixed

from zkconsumer.broker.cluster import LeaderLookup
from zkconsumer.errors import ClosedError, RetriableError, ZkConsumerError
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.settings import PAUSE_WHEN_REFUSED, FetchSettings
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint, TopicPartition

_JOIN_TIMEOUT = 5.0

#: Seconds that one broker may take to answer; the next one is asked then.
_LOOKUP_TIMEOUT = 10.0


class LeaderFinderThread:
    """Looks for leaders while some partition has none, at most every ``settings.backoff`` seconds.

    Args:
        brokers: the brokers to ask, one after the other.
        add_fetchers: takes partitions with their leaders.
        retire_idle: called after each round.
        on_failure: told of the partitions that wait when a round fails in a way that nobody thought of.
    """

    def __init__(
        self,
        name: str,
        settings: FetchSettings,
        brokers: Callable[[], Sequence[Endpoint]],
        add_fetchers: Callable[[Mapping[PartitionTopicInfo, tuple[int, Endpoint]]], None],
        retire_idle: Callable[[], None],
        on_failure: Callable[[PartitionTopicInfo, ZkConsumerError], None],
    ) -> None:
        self._settings = settings
        self._brokers = brokers
        self._add_fetchers = add_fetchers
        self._retire_idle = retire_idle
        self._on_failure = on_failure
        self._log = get_logger("zkconsumer.leader_finder")
        timeout = min(settings.socket_timeout, _LOOKUP_TIMEOUT)
        self._lookup = LeaderLookup(settings.client_id, timeout, settings.security)
        self._lock = threading.Lock()
        self._no_leader: dict[TopicPartition, PartitionTopicInfo] = {}
        self._changed = threading.Event()
        self._stop = threading.Event()
        self._rounds = Retrying(
            retry=retry_if_result(bool),
            wait=wait_fixed(settings.backoff),
            sleep=sleep_using_event(self._stop),
            stop=stop_when_event_set(self._stop),
            retry_error_callback=lambda _state: None,  # stopped
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop; a question under way is given up."""
        self._stop.set()
        self._changed.set()
        self._lookup.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_TIMEOUT)

    def add_no_leader_partitions(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Look for the leaders of these."""
        with self._lock:
            self._no_leader.update({info.partition: info for info in infos})
        self._changed.set()

    def remove_no_leader_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Look for these no more."""
        with self._lock:
            for partition in partitions:
                self._no_leader.pop(partition, None)

    @property
    def no_leader_partitions(self) -> set[TopicPartition]:
        """Partitions that wait for a leader."""
        with self._lock:
            return set(self._no_leader)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._changed.wait()
            self._changed.clear()
            try:
                self._rounds(self._one_round)
            except Exception as error:  # what nobody thought of; to end here would starve the partitions (KAFKA-4384)
                self._log.error("leader_finder_failed", exc_info=True)
                with self._lock:
                    waiting = list(self._no_leader.values())
                for info in waiting:
                    failure = ZkConsumerError(f"looking for the leader of {info.partition} failed: {error!r}")
                    failure.__cause__ = error
                    self._on_failure(info, failure)
                self._changed.set()
            self._stop.wait(self._settings.backoff)  # a leader that does not serve what it leads comes back at once

    def _one_round(self) -> bool:
        """Place what has a leader; True while something is left."""
        with self._lock:
            wanted = dict(self._no_leader)
        if self._stop.is_set():
            return False
        if wanted:
            try:
                leaders = self._lookup.leaders(self._brokers(), wanted)
                with self._lock:
                    placed = {
                        info: leaders[partition]
                        for partition, info in wanted.items()
                        if partition in leaders and self._no_leader.get(partition) is info
                    }
                    for info in placed:
                        del self._no_leader[info.partition]
                try:
                    self._add_fetchers(placed)
                except BaseException:
                    with self._lock:
                        for info in placed:
                            self._no_leader.setdefault(info.partition, info)
                    raise
            except ClosedError:
                return False
            except RetriableError as error:
                self._log.warning("leaders_not_found", partitions=len(wanted), error=str(error))
            except ZkConsumerError as error:  # a login that is refused, and the like: the user has to know
                self._log.error("leaders_refused", partitions=len(wanted), error=str(error))
                for info in wanted.values():
                    self._on_failure(info, error)
                self._stop.wait(PAUSE_WHEN_REFUSED)
        self._retire_idle()
        with self._lock:
            return bool(self._no_leader)
