"""LogOffsets: start and end offsets of logs, offsets by time, and samples of records.

Source: Kafka 1.1 kafka.consumer.SimpleConsumer.getOffsetsBefore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.broker.protocol import PartitionData
from zkconsumer.broker.security import PLAINTEXT, Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import NotLeaderError, RetriableError
from zkconsumer.message import Endpoint, TopicPartition

#: Kafka's UNKNOWN_SERVER_ERROR; also used for a partition that is missing in a response.
_UNKNOWN_SERVER_ERROR = -1


class LogOffsets:
    """Requests to the leaders of partitions, with one connection per broker. Used by one thread.

    Args:
        brokers: returns the brokers that may receive Metadata requests.
        timeout: maximum seconds to wait for each response.
        read_committed: treat the last stable offset as the end of a log, and fetch committed records only.

    Attributes:
        leaders: cached ``(broker id, endpoint)`` of the leader of each partition.
    """

    def __init__(
        self,
        brokers: Callable[[], Sequence[Endpoint]],
        client_id: str,
        *,
        timeout: float,
        read_committed: bool = False,
        security: Security = PLAINTEXT,
    ) -> None:
        self.leaders: dict[TopicPartition, tuple[int, Endpoint]] = {}
        self._brokers = brokers
        self._client_id = client_id
        self._timeout = timeout
        self._read_committed = read_committed
        self._security = security
        self._lookup = LeaderLookup(client_id, timeout, security)
        self._channels: dict[Endpoint, BrokerChannel] = {}

    @classmethod
    def of(cls, brokers: Callable[[], Sequence[Endpoint]], config: ConsumerConfig) -> LogOffsets:
        """Create an instance from a consumer's properties."""
        assert config.client_id is not None
        return cls(
            brokers,
            config.client_id,
            timeout=config.socket_timeout_ms / 1000,
            read_committed=config.read_committed,
            security=Security.of(config),
        )

    def find_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, Endpoint]]:
        """Return ``(broker id, endpoint)`` of the leader of each partition that has one, from the cache if possible."""
        requested = set(partitions)
        missing = requested - self.leaders.keys()
        if missing:
            self.leaders.update(self._lookup.leaders(self._brokers(), missing))
        return {partition: self.leaders[partition] for partition in requested if partition in self.leaders}

    def offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Return an offset of each partition, or -1 if no record is at or after ``timestamp``.

        Args:
            timestamp: milliseconds since the epoch, or ``protocol.EARLIEST`` or ``LATEST``.

        Raises:
            RetriableError: a partition has no leader, or a leader did not respond; the next call looks it up again.
        """
        offsets, errors = self.look_up(partitions, timestamp)
        if errors:
            raise errors[min(errors)]
        return offsets

    def look_up(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, RetriableError]]:
        """Return the offset of each partition as ``offsets`` does, or its error.

        Raises:
            RetriableError: the leaders could not be looked up.
        """
        offsets: dict[TopicPartition, int] = {}
        requested = set(partitions)
        leaders = self.find_leaders(requested)
        errors: dict[TopicPartition, RetriableError] = {
            partition: NotLeaderError(f"partition {partition} has no leader")
            for partition in requested - leaders.keys()
        }
        for channel, led_partitions in self._by_leader(leaders):
            request = protocol.list_offsets_request(led_partitions, timestamp, read_committed=self._read_committed)
            try:
                results = protocol.parse_list_offsets_response(channel.request(request))
            except RetriableError as error:
                errors.update(dict.fromkeys(led_partitions, error))
                continue
            for partition in led_partitions:
                code, offset = results.get(partition, (_UNKNOWN_SERVER_ERROR, -1))
                if code:
                    errors[partition] = NotLeaderError(
                        f"could not list offsets of partition {partition} on broker {channel.endpoint}: error {code}"
                    )
                else:
                    offsets[partition] = offset
        self._invalidate_leaders(errors)
        return offsets, errors

    def fetch(self, positions: Mapping[TopicPartition, int], max_bytes: int) -> dict[TopicPartition, PartitionData]:
        """Fetch records from each position, without waiting for new ones.

        Partitions whose position is out of range, or whose log is corrupt there, are missing in the result. For each
        leader at least one partition with records returns some; others may return none.

        Args:
            positions: next offset to read of each partition.
            max_bytes: maximum bytes per partition.

        Raises:
            RetriableError: a partition has no leader, or a leader did not respond.
        """
        fetched: dict[TopicPartition, PartitionData] = {}
        for channel, led_partitions in self._by_leader(positions):
            request = protocol.fetch_request(
                {partition: positions[partition] for partition in sorted(led_partitions)},
                max_wait_ms=0,
                min_bytes=0,
                partition_max_bytes=max_bytes,
                read_committed=self._read_committed,
            )
            try:
                with channel.exchange(request) as frame:
                    result = protocol.read_fetch_response(frame, request.API_VERSION)
            except RetriableError:
                self._invalidate_leaders(led_partitions)
                raise
            for data in result.partitions:
                error = data.error_code or result.error_code
                if error in (protocol.OFFSET_OUT_OF_RANGE, protocol.CORRUPT_MESSAGE):
                    continue
                if error:
                    self._invalidate_leaders(led_partitions)
                    raise NotLeaderError(
                        f"could not fetch partition {data.partition} from broker {channel.endpoint}: error {error}"
                    )
                fetched[data.partition] = data
        return fetched

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> Iterator[tuple[BrokerChannel, list[TopicPartition]]]:
        requested = set(partitions)
        leaders = self.find_leaders(requested)
        if missing := sorted(requested - leaders.keys()):
            raise NotLeaderError(f"partition {missing[0]} has no leader")
        by_leader: dict[Endpoint, list[TopicPartition]] = {}
        for partition, (_, endpoint) in leaders.items():
            by_leader.setdefault(endpoint, []).append(partition)
        for endpoint, led_partitions in by_leader.items():
            channel = self._channels.get(endpoint)
            if channel is None:
                channel = self._channels[endpoint] = BrokerChannel(
                    endpoint, self._client_id, timeout=self._timeout, security=self._security
                )
            yield channel, led_partitions

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the topic id of each topic that exists, see ``topic_id``; "" if the brokers have no topic ids.

        Raises:
            BrokerUnavailableError: none of the brokers responded.
        """
        return protocol.topic_ids_of(self._lookup.metadata(self._brokers(), topics))

    def close(self) -> None:
        """Close the connections."""
        self._lookup.close()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _invalidate_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.leaders.pop(partition, None)
