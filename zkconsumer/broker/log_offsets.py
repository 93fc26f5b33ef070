"""LogOffsets: where the logs of partitions start and end, the offsets at a time, and samples of records.

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

#: The version from which on answers to Metadata requests have ids of topics.
_HAS_TOPIC_IDS = 10


class LogOffsets:
    """Asks leaders for offsets of their logs; keeps one connection per broker. Used by one thread.

    Args:
        brokers: returns the brokers that may be asked for leaders.
        timeout: seconds for each answer.
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
        """Return what a consumer with these properties asks."""
        assert config.client_id is not None
        return cls(
            brokers,
            config.client_id,
            timeout=config.socket_timeout_ms / 1000,
            read_committed=config.read_committed,
            security=Security.of(config),
        )

    def find_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, Endpoint]]:
        """Return node id and endpoint of each partition's leader, as far as there is one; remembered ones first."""
        wanted = set(partitions)
        missing = wanted - self.leaders.keys()
        if missing:
            self.leaders.update(self._lookup.leaders(self._brokers(), missing))
        return {partition: self.leaders[partition] for partition in wanted if partition in self.leaders}

    def offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Return an offset of each partition; see ``protocol.list_offsets_request``.

        Raises:
            RetriableError: a leader is missing or does not answer; it is looked for anew the next time.
        """
        found: dict[TopicPartition, int] = {}
        for channel, theirs in self._by_leader(partitions):
            request = protocol.list_offsets_request(theirs, timestamp, read_committed=self._read_committed)
            try:
                answers = protocol.parse_list_offsets_response(channel.request(request))
            except RetriableError:
                self._forget(theirs)
                raise
            for partition, (error, offset) in answers.items():
                if error:
                    self._forget(theirs)
                    raise NotLeaderError(f"broker {channel.endpoint} cannot tell offsets of {partition}: error {error}")
                found[partition] = offset
        return found

    def fetch(self, positions: Mapping[TopicPartition, int], max_bytes: int) -> dict[TopicPartition, PartitionData]:
        """Return some of the records from each position on, at once; of a partition perhaps none, but of one.

        Those are left out whose leader does not have the offset, or cannot read its log there.

        Raises:
            RetriableError: a leader is missing or does not answer.
        """
        found: dict[TopicPartition, PartitionData] = {}
        for channel, theirs in self._by_leader(positions):
            request = protocol.fetch_request(
                {partition: positions[partition] for partition in sorted(theirs)},
                max_wait_ms=0,
                min_bytes=0,
                partition_max_bytes=max_bytes,
                read_committed=self._read_committed,
            )
            try:
                with channel.exchange(request) as frame:
                    answer = protocol.read_fetch_response(frame, request.API_VERSION)
            except RetriableError:
                self._forget(theirs)
                raise
            for data in answer.partitions:
                error = data.error_code or answer.error_code
                if error in (protocol.OFFSET_OUT_OF_RANGE, protocol.CORRUPT_MESSAGE):
                    continue
                if error:
                    self._forget(theirs)
                    raise NotLeaderError(f"broker {channel.endpoint} cannot read {data.partition}: error {error}")
                found[data.partition] = data
        return found

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> Iterator[tuple[BrokerChannel, list[TopicPartition]]]:
        wanted = set(partitions)
        leaders = self.find_leaders(wanted)
        if missing := sorted(wanted - leaders.keys()):
            raise NotLeaderError(f"partition {missing[0]} has no leader now")
        by_leader: dict[Endpoint, list[TopicPartition]] = {}
        for partition, (_, endpoint) in leaders.items():
            by_leader.setdefault(endpoint, []).append(partition)
        for endpoint, theirs in by_leader.items():
            channel = self._channels.get(endpoint)
            if channel is None:
                channel = self._channels[endpoint] = BrokerChannel(
                    endpoint, self._client_id, timeout=self._timeout, security=self._security
                )
            yield channel, theirs

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return what tells each topic that exists from an earlier one of its name; "" where brokers have no ids.

        Raises:
            BrokerUnavailableError: none of the brokers answers.
        """
        answer = self._lookup.metadata(self._brokers(), topics)
        known = [topic for topic in answer.topics if topic.partitions]
        if answer.API_VERSION < _HAS_TOPIC_IDS:
            return dict.fromkeys((topic.name for topic in known), "")
        return {topic.name: f"id-{topic.topic_id}" if topic.topic_id.int else "" for topic in known}

    def close(self) -> None:
        """Close the connections."""
        self._lookup.close()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.leaders.pop(partition, None)
