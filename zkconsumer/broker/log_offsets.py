"""LogOffsets: log start offsets, end offsets, offsets by timestamp, and record samples.

Source: Kafka 1.1 kafka.consumer.SimpleConsumer.getOffsetsBefore.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.error_codes import broker_error
from zkconsumer.broker.fetch_request import FetchRequest
from zkconsumer.broker.leaders import MAX_LOOKUP_TIMEOUT_S, LeaderLookup, no_leader_error
from zkconsumer.broker.protocol import PartitionData
from zkconsumer.broker.topics import TopicLookup
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import BrokerUnavailableError, NotLeaderError, RetriableError, ZkConsumerError
from zkconsumer.message import Endpoint, TopicPartition

#: Maximum total seconds for requests to leaders whose previous request timed out. Not applied if the previous requests
#: to all leaders timed out.
SILENT_TIMEOUT_S = 2.0

#: Minimum seconds for a request to a leader whose previous request timed out, including connection setup and
#: authentication; capped at the shared timeout. Leaders for which no time is left are queried by a later call.
_MIN_SILENT_TIMEOUT_S = 1.0

#: Minimum fraction of the timeout for a leader whose previous request did not time out.
_MIN_SHARE = 1 / 4

#: Default maximum seconds before leaders are looked up again: the default of ``metadata.max.age.ms``.
_MAX_AGE_S = 30.0

#: Minimum seconds per leader for a lookup by timestamp, because leaders must search their time indexes.
_SEARCH_TIME_S = 3.0


class LogOffsets:
    """Sends requests to partition leaders, with one connection per broker. Used by one thread.

    All leaders share one timeout, so that an unresponsive leader cannot delay the result beyond it. Leaders whose
    previous request timed out are queried last, with a shorter timeout.

    Args:
        brokers: function that returns the brokers to which Metadata requests may be sent.
        connecting: connection settings. The timeout is shared by all leaders. It is capped at ``MAX_LOOKUP_TIMEOUT_S``
            for start and end offsets, which leaders return from memory.
        read_committed: whether to treat the last stable offset as the end of a log, and fetch only committed records.
        silent_timeout_s: maximum total seconds for requests to leaders whose previous request timed out. Not applied if
            the previous requests to all leaders timed out.
        min_silent_timeout_s: minimum seconds for a leader whose previous request timed out, capped at the shared
            timeout.
        max_age_s: maximum seconds before the leaders are looked up again, to find new brokers while the
            previously known ones still respond.

    Attributes:
        leaders: cached partition leaders, as ``(broker id, endpoint)``.
        topics: topic lookup, which shares the connection of the leader lookup.
    """

    def __init__(
        self,
        brokers: Callable[[], Sequence[Endpoint]],
        connecting: Connecting,
        *,
        read_committed: bool = False,
        silent_timeout_s: float = SILENT_TIMEOUT_S,
        min_silent_timeout_s: float = _MIN_SILENT_TIMEOUT_S,
        max_age_s: float = _MAX_AGE_S,
    ) -> None:
        self.leaders: dict[TopicPartition, tuple[int, Endpoint]] = {}
        self._brokers = brokers
        self._connecting = connecting
        self._timeout_s = connecting.timeout_s
        self._max_age_s = max_age_s
        self._next_refresh = time.monotonic() + max_age_s
        self._read_committed = read_committed
        self._silent_timeout_s, self._min_silent_timeout_s = silent_timeout_s, min_silent_timeout_s
        self._lookup = LeaderLookup(connecting)
        self.topics = TopicLookup(self._lookup, brokers)
        self._channels: dict[Endpoint, BrokerChannel] = {}
        #: Leaders whose last request timed out, oldest request first.
        self._silent: dict[Endpoint, None] = {}

    @classmethod
    def from_config(cls, brokers: Callable[[], Sequence[Endpoint]], config: ConsumerConfig) -> LogOffsets:
        """Create an instance from consumer properties."""
        return cls(
            brokers,
            Connecting.from_config(config),
            read_committed=config.read_committed,
            max_age_s=config.metadata_max_age_s,
        )

    def brokers(self) -> list[Endpoint]:
        """Return the brokers to which requests may be sent; see ``LeaderLookup.brokers``."""
        return self._lookup.brokers(self._brokers())

    def find_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, Endpoint]]:
        """Return the leaders of partitions that have one, as ``(broker id, endpoint)``, from the cache if possible."""
        return self._find_leaders(partitions)[0]

    def _find_leaders(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, tuple[int, Endpoint]], dict[TopicPartition, ZkConsumerError]]:
        """Return the result of ``find_leaders``, and the error of each partition without a leader."""
        requested = set(partitions)
        errors: dict[TopicPartition, ZkConsumerError] = {}
        is_outdated = time.monotonic() >= self._next_refresh
        missing = requested - self.leaders.keys()
        if missing or (is_outdated and requested):
            if is_outdated:
                self._next_refresh = time.monotonic() + self._max_age_s
            try:
                found = self._lookup.look_up(self._brokers(), requested if is_outdated else missing)
            except ZkConsumerError:
                if missing:
                    raise
                return {p: self.leaders[p] for p in requested}, {}  # the known leaders may still respond
            self._invalidate_leaders(found.errors)
            self.leaders.update(found.leaders)
            errors = {partition: no_leader_error(code, partition) for partition, code in found.errors.items()}
        return {p: self.leaders[p] for p in requested if p in self.leaders}, errors

    def offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Return the offset of the first record at or after ``timestamp``, by partition; -1 if there is none.

        Args:
            timestamp: milliseconds since the epoch, ``EARLIEST`` for the log start offset, or
                ``LATEST`` for the end offset.

        Raises:
            RetriableError: a partition has no leader, or a leader did not respond. The next call repeats the leader
                lookup.
        """
        offsets, errors = self.look_up(partitions, timestamp)
        if errors:
            raise errors[min(errors)]
        return offsets

    def look_up(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ZkConsumerError]]:
        """Return offsets like ``offsets``, and an error for each partition that failed.

        Raises:
            RetriableError: the leaders could not be looked up.
        """
        offsets: dict[TopicPartition, int] = {}
        leaders, errors = self._find_leaders(partitions)
        by_leader = _group_by_leader(leaders)
        timeout_s = min(self._timeout_s, MAX_LOOKUP_TIMEOUT_S)
        if timestamp >= 0:
            timeout_s = max(self._timeout_s, _SEARCH_TIME_S * len(by_leader))
        for endpoint, share_s in self._shares(by_leader, timeout_s):
            led_partitions = by_leader[endpoint]
            if share_s is None:
                errors.update(dict.fromkeys(led_partitions, _silent_error(endpoint)))
                continue
            found, failed = self._list_offsets(endpoint, led_partitions, timestamp, share_s)
            offsets |= found
            errors |= failed
        self._invalidate_leaders(errors)
        return offsets, errors

    def _list_offsets(
        self, leader: Endpoint, partitions: Collection[TopicPartition], timestamp: int, timeout_s: float
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ZkConsumerError]]:
        """Send a ListOffsets request to a leader, and return an offset or an error for each partition."""
        request = protocol.list_offsets_request(partitions, timestamp, read_committed=self._read_committed)
        try:
            with self._record_silence(leader):
                response = self._channel_to(leader).request(request, timeout_s)
                results = protocol.parse_list_offsets_response(response)
        except RetriableError as error:
            return {}, dict.fromkeys(partitions, error)
        offsets: dict[TopicPartition, int] = {}
        errors: dict[TopicPartition, ZkConsumerError] = {}
        for partition in partitions:
            failure = f"could not list offsets of partition {partition} on broker {leader}"
            code, offset = results.get(partition, (protocol.NONE, -1))
            if partition not in results:
                errors[partition] = NotLeaderError(f"{failure}: the response does not contain the partition")
            elif code:
                errors[partition] = broker_error(code, failure)
            else:
                offsets[partition] = offset
        return offsets, errors

    def fetch(self, positions: Mapping[TopicPartition, int], max_bytes: int) -> dict[TopicPartition, PartitionData]:
        """Fetch the records at the given positions, without waiting for new records.

        Partitions whose position is out of range, or whose log is corrupt at the position, are absent from the result.
        Each leader returns records for at least one of the partitions that have records, but not necessarily for all.

        Args:
            positions: next offset to read, by partition.
            max_bytes: maximum bytes per partition.

        Raises:
            RetriableError: a partition has no leader, or a leader did not respond.
        """
        fetched: dict[TopicPartition, PartitionData] = {}
        leaders, errors = self._find_leaders(positions)
        if errors:
            raise errors[min(errors)]
        by_leader = _group_by_leader(leaders)
        for endpoint, share_s in self._shares(by_leader, self._timeout_s):
            if share_s is None:
                raise _silent_error(endpoint)
            led_positions = {partition: positions[partition] for partition in sorted(by_leader[endpoint])}
            fetched |= self._fetch(endpoint, led_positions, max_bytes, share_s)
        return fetched

    def _fetch(
        self, leader: Endpoint, positions: Mapping[TopicPartition, int], max_bytes: int, timeout_s: float
    ) -> dict[TopicPartition, PartitionData]:
        """Send a Fetch request to a leader; see ``fetch``."""
        request = FetchRequest(
            {partition: (offset, max_bytes) for partition, offset in positions.items()},
            max_wait_ms=0,
            min_bytes=0,
            read_committed=self._read_committed,
        )
        try:
            with self._record_silence(leader), self._channel_to(leader).exchange(request, timeout_s) as frame:
                result = protocol.read_fetch_response(frame, request.version)
        except RetriableError:
            self._invalidate_leaders(positions)
            raise
        fetched: dict[TopicPartition, PartitionData] = {}
        for data in result.partitions:
            error = data.error_code or result.error_code
            if error in (protocol.OFFSET_OUT_OF_RANGE, protocol.CORRUPT_MESSAGE):
                continue
            if error:
                self._invalidate_leaders(positions)
                raise broker_error(error, f"could not fetch partition {data.partition} from broker {leader}")
            fetched[data.partition] = data
        return fetched

    def _shares(self, leaders: Collection[Endpoint], timeout_s: float) -> Iterator[tuple[Endpoint, float | None]]:
        """Yield each leader and its timeout in seconds; the timeout is None if the leader is skipped this time."""
        deadline = time.monotonic() + timeout_s
        silent = [endpoint for endpoint in self._silent if endpoint in leaders]
        others = [endpoint for endpoint in leaders if endpoint not in self._silent]
        if not others:
            silent, others = [], silent
        for number, endpoint in enumerate(others):
            remaining = deadline - time.monotonic()
            share_s = max(remaining / (len(others) - number), timeout_s * _MIN_SHARE)
            yield endpoint, min(remaining, share_s) if remaining > 0 else None
        # Always query one leader whose previous request timed out. Otherwise, if the timeout is short, these leaders
        # would never be queried.
        least_s = min(self._min_silent_timeout_s, timeout_s)
        now = time.monotonic()
        deadline = max(now + least_s, min(deadline, now + self._silent_timeout_s))
        for number, endpoint in enumerate(silent):
            remaining = deadline - time.monotonic()
            yield endpoint, max(remaining, least_s) if number == 0 or remaining >= least_s else None

    def _channel_to(self, endpoint: Endpoint) -> BrokerChannel:
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = self._channels[endpoint] = self._connecting.channel(endpoint)
        return channel

    @contextlib.contextmanager
    def _record_silence(self, leader: Endpoint) -> Iterator[None]:
        """Context manager: record whether the leader responds in time to the request sent in the block."""
        self._silent.pop(leader, None)
        try:
            yield
        except RetriableError as error:
            if isinstance(error.__cause__, TimeoutError):
                self._silent[leader] = None
            raise

    def close(self) -> None:
        """Close the connections."""
        self._lookup.close()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _invalidate_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.leaders.pop(partition, None)


def _group_by_leader(leaders: Mapping[TopicPartition, tuple[int, Endpoint]]) -> dict[Endpoint, list[TopicPartition]]:
    by_leader: dict[Endpoint, list[TopicPartition]] = {}
    for partition, (_, endpoint) in leaders.items():
        by_leader.setdefault(endpoint, []).append(partition)
    return by_leader


def _silent_error(leader: Endpoint) -> BrokerUnavailableError:
    return BrokerUnavailableError(f"broker {leader} did not respond to the previous request; it will be retried later")
