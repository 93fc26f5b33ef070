"""GroupCoordinator: the broker that keeps a group's offsets in Kafka.

Source: Kafka 1.1 kafka.client.ClientUtils.channelToOffsetManager, kafka.api.OffsetCommitRequest, OffsetFetchRequest.
Different on purpose: it neither waits nor tries for ever; each call asks once, and says what went wrong.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.security import PLAINTEXT, Security
from zkconsumer.errors import BrokerUnavailableError, RetriableError, ZkConsumerError
from zkconsumer.message import Endpoint, TopicPartition

_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR = 14, 15, 16
_NEW_MEMBERS = (22, 25, 27)  # illegal generation, unknown member, rebalance in progress
_REFUSED = {29: "the topic is not authorized", 30: "the group is not authorized", 24: "the group's name is not valid"}


class GroupCoordinator:
    """Reads and writes a group's offsets; keeps one connection. Used by one thread.

    Args:
        brokers: returns the brokers that may be asked which of them it is.
        timeout: seconds for each answer.
    """

    def __init__(
        self,
        group: str,
        brokers: Callable[[], Sequence[Endpoint]],
        client_id: str,
        *,
        timeout: float,
        security: Security = PLAINTEXT,
    ) -> None:
        self.group = group
        self._brokers = brokers
        self._client_id = client_id
        self._timeout = timeout
        self._security = security
        self._channel: BrokerChannel | None = None

    def fetch_offsets(self, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, int]:
        """Return the stored offset of each partition, -1 for none; for None of all that have one (Kafka 0.10.2 on).

        Raises:
            RetriableError: the coordinator is away, or loads what it stores.
            ZkConsumerError: it refuses. An error is never taken for "no offset".
        """
        wanted = None if partitions is None else list(partitions)
        answer = self._connected().request(protocol.offset_fetch_request(self.group, wanted))
        found, errors = protocol.parse_offset_fetch_response(answer)
        for partition, code in errors.items():
            raise self._error(f"fetch the offset of {partition}" if partition else "fetch offsets", code)
        missing = [] if wanted is None else [partition for partition in wanted if partition not in found]
        if missing:
            raise RetriableError(f"the coordinator of group {self.group!r} says nothing of {missing[0]}")
        return found

    def commit_offsets(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, ZkConsumerError]:
        """Store offsets and return the partitions that were refused, with the reason.

        Raises:
            RetriableError: the coordinator is away; it is not known what is stored.
        """
        answer = self._connected().request(protocol.offset_commit_request(self.group, offsets))
        return {
            partition: self._error(f"commit offset {offsets[partition]} of {partition}", code)
            for partition, code in protocol.parse_offset_commit_response(answer).items()
            if code
        }

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _error(self, doing: str, code: int) -> ZkConsumerError:
        text = f"the coordinator of group {self.group!r} cannot {doing}"
        if code in (_NOT_AVAILABLE, _NOT_COORDINATOR):
            self.close()
            return RetriableError(f"{text}: there is none now, or it has moved (error {code})")
        if code == protocol.UNKNOWN_TOPIC_OR_PARTITION:
            return RetriableError(f"{text}: it does not know the partition (yet) (error {code})")
        if code == _LOADING:
            return RetriableError(f"{text}: it is still loading the offsets (error {code})")
        if code in _NEW_MEMBERS:
            return ZkConsumerError(
                f"{text}: consumers that are coordinated by Kafka itself are in a group of that name (error {code}); "
                "stop them, or take another group.id"
            )
        return ZkConsumerError(f"{text}: {_REFUSED.get(code, 'it refuses')} (error {code})")

    def _connected(self) -> BrokerChannel:
        if self._channel is None:
            self._channel = self._new_channel(self._find())
        try:
            return self._channel.connect()
        except RetriableError:
            self.close()
            raise

    def _new_channel(self, endpoint: Endpoint) -> BrokerChannel:
        return BrokerChannel(endpoint, self._client_id, timeout=self._timeout, security=self._security)

    def _find(self) -> Endpoint:
        brokers = list(self._brokers())
        random.shuffle(brokers)
        failures = []
        deadline = time.monotonic() + self._timeout  # for all of them: a session may depend on this thread
        for endpoint in brokers:
            if time.monotonic() > deadline:
                break
            channel = self._new_channel(endpoint)
            try:
                answer = channel.request(protocol.find_coordinator_request(self.group))
            except RetriableError as error:
                failures.append(str(error))
                continue
            finally:
                channel.close()
            if answer.error_code:
                raise self._error("be found", answer.error_code)
            return Endpoint(answer.host, answer.port).with_versions_from(brokers)
        raise BrokerUnavailableError(
            f"no broker tells the coordinator of group {self.group!r}: " + ("; ".join(failures) or "none is known")
        )
