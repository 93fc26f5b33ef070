"""KafkaServer: a simulated broker with the wire protocol of Kafka 3.9."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from zkconsumer.message import TopicPartition

from .brokers import Broker, Brokers, Log
from .kernel import kernel
from .network import Connection, Network, take_frames

#: Supported versions by API key.
_VERSIONS = {
    ApiVersionsRequest: (0, 3),
    FetchRequest: (0, 11),
    FindCoordinatorRequest: (0, 2),
    ListOffsetsRequest: (0, 5),
    MetadataRequest: (0, 12),
    OffsetCommitRequest: (0, 7),
    OffsetFetchRequest: (0, 5),
}
_BY_KEY = {request.API_KEY: request for request in _VERSIONS}

_NONE, _OUT_OF_RANGE, _UNKNOWN_TOPIC, _NOT_LEADER, _NOT_COORDINATOR = 0, 1, 3, 6, 16
_UNSUPPORTED_VERSION = 35
_EARLIEST, _LATEST = -2, -1


class KafkaServer:
    """The connections of a broker."""

    def __init__(self, brokers: Brokers, broker: Broker, network: Network) -> None:
        self._brokers, self._broker, self._network = brokers, broker, network
        self._connections: dict[Connection, None] = {}
        self._fetches: list[tuple[Connection, Any]] = []  # requests that wait for records
        broker.on_append, broker.stop, broker.start = self._answer_fetches, self._stop, self._start
        self._answers: dict[Any, Callable[[Any, str], Any]] = {
            ApiVersionsRequest: self._api_versions,
            FindCoordinatorRequest: self._find_coordinator,
            ListOffsetsRequest: self._list_offsets,
            MetadataRequest: self._metadata,
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._offsets,
        }
        self._start()

    def accept(self, connection: Connection) -> None:
        connection.state = bytearray()
        self._connections[connection] = None

    def lose(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def receive(self, connection: Connection, data: bytes) -> None:
        buffer: bytearray = connection.state
        buffer += data
        for frame in take_frames(buffer):
            self._handle(connection, frame)

    def _handle(self, connection: Connection, frame: bytes) -> None:
        key, version = struct.unpack_from(">hh", frame)
        kind = _BY_KEY[key]
        if version > _VERSIONS[kind][1]:
            assert kind is ApiVersionsRequest
            [correlation] = struct.unpack_from(">i", frame, 4)
            response = self._api_versions(None, "")
            response.error_code = _UNSUPPORTED_VERSION
            self._send(connection, response, 0, correlation)
            return
        request = kind.decode(frame, version=version, header=True)
        self._brokers.counts[kind.__name__.removesuffix("Request")] += 1
        if kind is FetchRequest:
            self._fetch(connection, request, version)
        else:
            response = self._answers[kind](request, request.header.client_id)
            self._send(connection, response, version, request.header.correlation_id)

    def _send(self, connection: Connection, response: Any, version: int, correlation: int) -> None:
        response.API_VERSION = version
        response.with_header(correlation_id=correlation)
        connection.send(bytes(response.encode(header=True, framed=True)))

    def _stop(self) -> None:
        self._network.unlisten(self._broker.address)
        for connection in list(self._connections):
            connection.close()
        self._connections.clear()
        self._fetches.clear()

    def _start(self) -> None:
        self._network.listen(self._broker.address, self)

    # ---- answers ----

    def _api_versions(self, _request: Any, _client: str) -> Any:
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=kind.API_KEY, min_version=low, max_version=high)
            for kind, (low, high) in _VERSIONS.items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0)

    def _metadata(self, request: Any, _client: str) -> Any:
        kinds = MetadataResponse.MetadataResponseTopic
        view = self._broker.view
        names = [topic.name for topic in request.topics] if request.topics is not None else list(view)
        topics = []
        for name in names:
            identity, leaders = view.get(name, (None, []))
            partitions = [
                kinds.MetadataResponsePartition(
                    error_code=0 if leader in self._broker.peers else 5,
                    partition_index=number,
                    leader_id=leader if leader in self._broker.peers else -1,
                    leader_epoch=epoch,
                    replica_nodes=[leader],
                    isr_nodes=[leader],
                    offline_replicas=[],
                )
                for number, (leader, epoch) in enumerate(leaders)
            ]
            topic = kinds(error_code=0 if identity else _UNKNOWN_TOPIC, name=name, is_internal=False)
            topic.partitions = partitions
            if identity is not None:
                topic.topic_id = identity
            topics.append(topic)
        nodes = [
            MetadataResponse.MetadataResponseBroker(node_id=number, host=host, port=port, rack=None)
            for number, (host, port) in self._broker.peers.items()
        ]
        return MetadataResponse(
            throttle_time_ms=0, brokers=nodes, cluster_id="simulated", controller_id=nodes[0].node_id, topics=topics
        )

    def _find_coordinator(self, _request: Any, _client: str) -> Any:
        number = self._brokers.coordinator
        if number not in self._broker.peers:
            return FindCoordinatorResponse(
                throttle_time_ms=0, error_code=15, error_message=None, node_id=-1, host="", port=-1
            )
        host, port = self._broker.peers[number]
        return FindCoordinatorResponse(
            throttle_time_ms=0, error_code=0, error_message=None, node_id=number, host=host, port=port
        )

    def _find(self, topic: str, number: int) -> tuple[int, Log | None]:
        log = self._brokers.find(TopicPartition(topic, number))
        if log is None:
            return _UNKNOWN_TOPIC, None
        return (_NONE if log.leader == self._broker.number else _NOT_LEADER), log

    def _list_offsets(self, request: Any, _client: str) -> Any:
        kinds = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for topic in request.topics:
            found = []
            for one in topic.partitions:
                error, log = self._find(topic.name, one.partition_index)
                offset = -1
                if not error and log is not None:
                    offset = log.end if one.timestamp == _LATEST else log.start
                found.append(
                    kinds.ListOffsetsPartitionResponse(
                        partition_index=one.partition_index,
                        error_code=error,
                        old_style_offsets=[] if offset < 0 else [offset],
                        timestamp=-1,
                        offset=offset,
                        leader_epoch=0,
                    )
                )
            topics.append(kinds(name=topic.name, partitions=found))
        return ListOffsetsResponse(throttle_time_ms=0, topics=topics)

    def _commit(self, request: Any, client: str) -> Any:
        kinds = OffsetCommitResponse.OffsetCommitResponseTopic
        is_coordinator = self._brokers.coordinator == self._broker.number
        topics = []
        for topic in request.topics:
            partitions = []
            for one in topic.partitions:
                partition = TopicPartition(topic.name, one.partition_index)
                error = _NONE if is_coordinator else _NOT_COORDINATOR
                if not error and self._brokers.find(partition) is None:
                    error = _UNKNOWN_TOPIC
                if not error:
                    key = request.group_id, *partition
                    self._brokers.on_commit(client, partition, one.committed_offset)
                    self._brokers.offsets[key] = one.committed_offset, one.committed_metadata or ""
                partitions.append(
                    kinds.OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error)
                )
            topics.append(kinds(name=topic.name, partitions=partitions))
        return OffsetCommitResponse(throttle_time_ms=0, topics=topics)

    def _offsets(self, request: Any, _client: str) -> Any:
        kinds = OffsetFetchResponse.OffsetFetchResponseTopic
        if self._brokers.coordinator != self._broker.number:
            return OffsetFetchResponse(throttle_time_ms=0, topics=[], error_code=_NOT_COORDINATOR)
        topics = []
        for topic in request.topics or ():
            partitions = []
            for number in topic.partition_indexes:
                offset, metadata = self._brokers.offsets.get((request.group_id, topic.name, number), (-1, ""))
                partitions.append(
                    kinds.OffsetFetchResponsePartition(
                        partition_index=number,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        metadata=metadata,
                        error_code=0,
                    )
                )
            topics.append(kinds(name=topic.name, partitions=partitions))
        return OffsetFetchResponse(throttle_time_ms=0, topics=topics, error_code=0)

    # ---- records ----

    def _fetch(self, connection: Connection, request: Any, version: int) -> None:
        response, has_news = self._read(request)
        if has_news or request.max_wait_ms <= 0:
            self._send(connection, response, version, request.header.correlation_id)
            return
        waiting = connection, request
        self._fetches.append(waiting)

        def expire() -> None:
            if waiting in self._fetches:
                self._fetches.remove(waiting)
                self._send(connection, self._read(request)[0], version, request.header.correlation_id)

        kernel().call_later(request.max_wait_ms / 1_000, expire)

    def _answer_fetches(self) -> None:
        for connection, request in list(self._fetches):
            response, has_news = self._read(request)
            if has_news:
                self._fetches.remove((connection, request))
                self._send(connection, response, 11, request.header.correlation_id)

    def _read(self, request: Any) -> tuple[Any, bool]:
        """Return a response, and whether it contains records or errors."""
        kinds = FetchResponse.FetchableTopicResponse
        has_news, topics = False, []
        for topic in request.topics:
            partitions = []
            for one in topic.partitions:
                error, log = self._find(topic.topic, one.partition)
                data, end, start = b"", -1, -1
                if not error and log is not None:
                    end, start = log.end, log.start
                    if not log.start <= one.fetch_offset <= log.end:
                        error = _OUT_OF_RANGE
                    else:
                        data = _read_batches(log, one.fetch_offset, one.partition_max_bytes)
                has_news |= bool(error or data)
                partitions.append(
                    kinds.PartitionData(
                        partition_index=one.partition,
                        error_code=error,
                        high_watermark=end,
                        last_stable_offset=end,
                        log_start_offset=start,
                        aborted_transactions=None,
                        preferred_read_replica=-1,
                        records=data,
                    )
                )
            topics.append(kinds(topic=topic.topic, partitions=partitions))
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics), has_news


def _read_batches(log: Log, offset: int, max_bytes: int) -> bytes:
    found = b""
    for one in log.batches:
        if one.base + one.count > offset:
            if found and len(found) + len(one.data) > max_bytes:
                break
            found += one.data
    return found


__all__ = ["KafkaServer"]
