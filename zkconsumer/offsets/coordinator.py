"""GroupCoordinator: a client for the broker that stores a group's committed offsets and its members.

Source: Kafka 1.1 kafka.client.ClientUtils.channelToOffsetManager, kafka.api.OffsetCommitRequest, OffsetFetchRequest.
Deliberate difference: a failed fetch or commit request is not retried, except if the coordinator of earlier requests is
no longer running; the method raises or returns the error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.error_codes import broker_error, error_name
from zkconsumer.broker.leaders import request_any
from zkconsumer.broker.protocol import CommittedOffset
from zkconsumer.errors import BrokerUnavailableError, ConfigurationError, RetriableError, ZkConsumerError
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.zookeeper.registry import OFFSET_MAX

_NOT_AVAILABLE, _NOT_COORDINATOR = 15, 16
#: Errors that indicate active members coordinated by Kafka: ILLEGAL_GENERATION (22), UNKNOWN_MEMBER_ID (25) and
#: REBALANCE_IN_PROGRESS (27).
_ACTIVE_MEMBERS = (22, 25, 27)
_INVALID_GROUP_ID = 24


class GroupCoordinator:
    """Fetches and commits a group's offsets over one connection. Used by one thread.

    Args:
        group: group id.
        brokers: function that returns the brokers to query for the coordinator, in this order.
        connecting: connection settings; the timeout limits a whole call, including the coordinator lookup.
    """

    def __init__(self, group: str, brokers: Callable[[], Sequence[Endpoint]], connecting: Connecting) -> None:
        self.group = group
        self._brokers = brokers
        self._connecting = connecting
        self._channel: BrokerChannel | None = None  # to the coordinator, or to a broker during the lookup
        self._is_closed = False

    def fetch_offsets(self, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, int]:
        """Return each partition's committed offset; see ``fetch_offsets_and_metadata``."""
        return {p: committed.offset for p, committed in self.fetch_offsets_and_metadata(partitions).items()}

    def fetch_offsets_and_metadata(
        self, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return each partition's committed offset and metadata; the offset is -1 if none is committed.

        Args:
            partitions: partitions to fetch; None for all partitions with a committed offset (requires Kafka 0.10.2).

        Raises:
            RetriableError: the coordinator is unavailable, or is loading the offsets.
            ZkConsumerError: the coordinator rejected the request, or a committed offset is too high; -1 is never
                returned in these cases.
        """
        requested = None if partitions is None else list(partitions)
        response = self._request(protocol.offset_fetch_request(self.group, requested))
        offsets, errors = protocol.parse_offset_fetch_response(response)
        for partition, code in errors.items():
            raise self._error(f"fetch the offset of partition {partition}" if partition else "fetch offsets", code)
        missing = [] if requested is None else [partition for partition in requested if partition not in offsets]
        if missing:
            raise RetriableError(
                f"could not fetch the offset of partition {missing[0]} for group {self.group!r}: the coordinator's "
                "response does not contain the partition"
            )
        for partition, (offset, _) in offsets.items():
            if offset >= OFFSET_MAX:  # fetchers use OFFSET_MAX for "no stop offset"
                raise ZkConsumerError(
                    f"the committed offset of partition {partition} for group {self.group!r} must be below "
                    f"{OFFSET_MAX}, got {offset}; set it to the next offset to consume, for example with "
                    "kafka-consumer-groups.sh --reset-offsets"
                )
        return offsets

    def commit_offsets(
        self, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str] | None = None
    ) -> dict[TopicPartition, ZkConsumerError]:
        """Commit offsets.

        Args:
            offsets: next offset to consume, by partition.
            metadata: metadata string to store with the offset, by partition; "" is stored for other partitions.

        Returns:
            The errors of the partitions whose offsets were not committed.

        Raises:
            RetriableError: the coordinator is unavailable; the offsets may have been committed nevertheless.
            ZkConsumerError: the brokers rejected the coordinator lookup; no offsets were committed.
        """
        response = self._request(protocol.offset_commit_request(self.group, offsets, metadata))
        return {
            partition: self._error(f"commit offset {offsets[partition]} of partition {partition}", code)
            for partition, code in protocol.parse_offset_commit_response(response).items()
            if code
        }

    def list_members(self) -> list[str]:
        """Return the ids and hosts of the group's members that Kafka coordinates.

        Raises:
            RetriableError: the coordinator is unavailable, or is loading the group.
            ZkConsumerError: the coordinator rejected the request.
        """
        response = self._request(protocol.describe_group_request(self.group))
        members, code = protocol.parse_describe_group_response(response)
        if code:
            raise self._error("list the members", code)
        return members

    def close(self) -> None:
        """Close the client. May be called from any thread; a concurrent request then raises ``ClosedError``."""
        self._is_closed = True
        channel = self._channel
        if channel is not None:
            channel.close()

    def _disconnect(self) -> None:
        """Close the connection; the next call opens a new one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _error(self, action: str, code: int) -> ZkConsumerError:
        """Return the exception for a failed ``action``; disconnect if the coordinator is unavailable or has moved."""
        failure = f"could not {action} for group {self.group!r}"
        if code in (_NOT_AVAILABLE, _NOT_COORDINATOR):
            self._disconnect()
        if code in _ACTIVE_MEMBERS:
            return ZkConsumerError(
                f"{failure}: {error_name(code)}; the group has active members that are coordinated by Kafka; stop "
                "these members first"
            )
        if code == _INVALID_GROUP_ID:
            return ConfigurationError(f"{failure}: {error_name(code)}; correct group.id")
        return broker_error(code, failure)

    def _request(self, request: Any) -> Any:
        """Send a request to the coordinator; a coordinator lookup, if required, may use up to half of the timeout."""
        deadline = time.monotonic() + self._connecting.timeout_s
        if self._channel is not None:
            try:
                return self._send(self._channel, request, deadline)
            except BrokerUnavailableError as error:
                if not isinstance(error.__cause__, OSError) or isinstance(error.__cause__, TimeoutError):
                    raise
                # The coordinator stopped while the connection was idle, so another broker may have replaced it.
        coordinator = self._find_coordinator((deadline - time.monotonic()) / 2)
        return self._send(self._open_channel(coordinator), request, deadline)

    def _send(self, channel: BrokerChannel, request: Any, deadline: float) -> Any:
        try:
            return channel.request(request, deadline - time.monotonic())
        except RetriableError:
            self._disconnect()
            raise

    def _open_channel(self, endpoint: Endpoint) -> BrokerChannel:
        channel = self._channel = self._connecting.channel(endpoint)
        if self._is_closed:  # checked after self._channel is set, so that this method or close() closes the channel
            channel.close()
        return channel

    def _find_coordinator(self, timeout_s: float) -> Endpoint:
        brokers = self._brokers()

        def request(endpoint: Endpoint, share_s: float) -> Any:
            try:
                return self._open_channel(endpoint).request(protocol.find_coordinator_request(self.group), share_s)
            finally:
                self._disconnect()

        failure = f"could not find the coordinator for group {self.group!r}: "
        response = request_any(brokers, timeout_s, request, failure)
        if response.error_code:
            raise self._error("find the coordinator", response.error_code)
        return Endpoint(response.host, response.port).with_versions_from(brokers)
