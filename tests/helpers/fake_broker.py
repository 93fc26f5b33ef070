"""A broker on a socket with one topic of one partition, whose responses a test can change.

It serves hand-made log entries, so that tests can return what no broker of Kafka does: impossible offsets, wrong sizes,
partitions that nobody requested.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
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

from zkconsumer.fetcher.fetch_session import FETCH_SESSION_ID_NOT_FOUND
from zkconsumer.message import Endpoint, TopicPartition

PARTITION = TopicPartition("t", 0)

FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR, API_VERSIONS = 1, 2, 3, 9, 10, 18
_REQUESTS = {
    FETCH: FetchRequest,
    LIST_OFFSETS: ListOffsetsRequest,
    METADATA: MetadataRequest,
    OFFSET_FETCH: OffsetFetchRequest,
    FIND_COORDINATOR: FindCoordinatorRequest,
}
_EARLIEST = -2
_OUT_OF_RANGE = 1
_UNKNOWN_TOPIC = 3

#: Changes a response: takes API key, request and the encoded body after the correlation id; None disconnects.
Change = Callable[[int, Any, bytes], "bytes | None"]


class FrameServer:
    """Listens on a port, and responds to frames that begin with their size, on any number of connections.

    Args:
        respond: takes a frame with its size, and the connection; returns the bytes to send, None to disconnect.

    Attributes:
        connections: number of connections so far.
    """

    def __init__(self, respond: Callable[[bytes, socket.socket], bytes | None]) -> None:
        self.connections = 0
        self._respond = respond
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint("127.0.0.1", self._listening.getsockname()[1])
        threading.Thread(target=self._accept, name="test-server", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the port and all connections."""
        for sock in (self._listening, *self._open):
            with contextlib.suppress(OSError):  # the client has disconnected
                sock.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            threading.Thread(target=self._serve, args=[connection], name="test-connection", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as stream:
                while head := stream.read(4):
                    response = self._respond(head + stream.read(struct.unpack(">i", head)[0]), connection)
                    if response is None:
                        return
                    connection.sendall(response)
        except OSError:
            pass  # the client has disconnected
        finally:
            self._open.discard(connection)


class FakeBroker(FrameServer):
    """Serves the entries of a log to any number of clients.

    Args:
        entries: encoded batches or messages, with the offset after each.
        start: log start offset.
        fetch_version: newest version of Fetch requests.
        change: changes a response.

    Attributes:
        high_watermark: the high watermark in Fetch responses; the end of the log by default.
        end: the end offset in ListOffsets responses.
        fetches: fetch offset and maximum bytes of each Fetch request.
        newest: newest version of each request.
        change_frame: changes a response with its size and correlation id; takes the API key, too.
        peers: the brokers in Metadata responses, in the order of their ids, which lead the partitions in turn; this one
            only by default.
        topic_errors: error codes of topics in responses to Fetch, ListOffsets, and Metadata requests that name them.
        partition_counts: topics in Metadata responses; None for each requested topic with one partition.
        partition_repetitions: how often Metadata responses name each partition.
        metadata_requests: number of Metadata requests.
        committed: committed offsets of all groups; the broker is their coordinator.
    """

    def __init__(
        self,
        entries: Sequence[tuple[bytes, int]] = (),
        *,
        start: int = 0,
        fetch_version: int = 11,
        change: Change = lambda _key, _request, body: body,
    ) -> None:
        self.entries, self.start, self.change = entries, start, change
        self.high_watermark = self.end = entries[-1][1] if entries else start
        self.change_frame: Callable[[int, bytes], bytes] = lambda _key, frame: frame
        self.partition_counts: dict[str, int] | None = None
        self.topic_errors: dict[str, int] = {}
        self.partition_repetitions = 1
        self.metadata_requests = 0
        self.committed: dict[TopicPartition, int] = {}
        self.fetches: list[tuple[int, int]] = []
        self.newest = {
            FETCH: fetch_version,
            LIST_OFFSETS: 5,
            METADATA: 9,
            OFFSET_FETCH: 5,
            FIND_COORDINATOR: 2,
            API_VERSIONS: 2,
        }
        super().__init__(self._response)
        self.peers: Sequence[Endpoint] = [self.endpoint]

    def _response(self, frame: bytes, _connection: socket.socket) -> bytes | None:
        key, version, correlation = struct.unpack_from(">hhi", frame, 4)
        if key == API_VERSIONS:
            body = self._api_versions(version)
            request: Any = ApiVersionsRequest(version=version)
        else:
            request = _REQUESTS[key].decode(frame, version=version, header=True, framed=True)
            answer = {
                FETCH: self._fetch,
                LIST_OFFSETS: self._list_offsets,
                METADATA: self._metadata,
                OFFSET_FETCH: self._fetch_offsets,
                FIND_COORDINATOR: self._find_coordinator,
            }[key]
            response = answer(request, version)
            body = bytes(response.encode())
            if response.flexible_version_q(version):
                body = b"\0" + body  # the tagged fields of the header
        changed = self.change(key, request, body)
        if changed is None:
            return None
        return self.change_frame(key, struct.pack(">ii", len(changed) + 4, correlation) + changed)

    def _api_versions(self, version: int) -> bytes:
        unsupported = version > self.newest[API_VERSIONS]
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=newest)
            for key, newest in self.newest.items()
        ]
        response = ApiVersionsResponse(
            version=0 if unsupported else version, error_code=35 if unsupported else 0, api_keys=keys
        )
        return bytes(response.encode())

    def _fetch(self, request: Any, version: int) -> Any:
        if not request.topics:  # a changed response contained a session id, and the client uses this session
            error = FETCH_SESSION_ID_NOT_FOUND
            return FetchResponse(version=version, throttle_time_ms=0, error_code=error, session_id=0, responses=[])
        [topic] = request.topics
        [wanted] = topic.partitions
        self.fetches.append((wanted.fetch_offset, wanted.partition_max_bytes))
        is_in_range = self.start <= wanted.fetch_offset <= self.end and topic.topic not in self.topic_errors
        records = b"".join(data for data, after in self.entries if after > wanted.fetch_offset) if is_in_range else b""
        part = FetchResponse.FetchableTopicResponse.PartitionData(
            partition_index=wanted.partition,
            error_code=self.topic_errors.get(topic.topic, 0 if is_in_range else _OUT_OF_RANGE),
            high_watermark=self.high_watermark,
            last_stable_offset=self.high_watermark,
            log_start_offset=self.start,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=records[: wanted.partition_max_bytes],
        )
        topics = [FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=[part])]
        return FetchResponse(version=version, throttle_time_ms=0, error_code=0, session_id=0, responses=topics)

    def _list_offsets(self, request: Any, version: int) -> Any:
        kind = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = [
            kind(
                name=topic.name,
                partitions=[
                    kind.ListOffsetsPartitionResponse(
                        partition_index=p.partition_index,
                        error_code=self.topic_errors.get(topic.name, 0),
                        timestamp=-1,
                        offset=self.start if p.timestamp == _EARLIEST else self.end,
                        old_style_offsets=[self.start if p.timestamp == _EARLIEST else self.end],
                        leader_epoch=0,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(version=version, throttle_time_ms=0, topics=topics)

    def _find_coordinator(self, _request: Any, version: int) -> Any:
        return FindCoordinatorResponse(
            version=version, error_code=0, node_id=0, host=self.endpoint.host, port=self.endpoint.port
        )

    def _fetch_offsets(self, request: Any, version: int) -> Any:
        kind = OffsetFetchResponse.OffsetFetchResponseTopic
        topics = [
            kind(
                name=topic.name,
                partitions=[
                    kind.OffsetFetchResponsePartition(
                        partition_index=number,
                        committed_offset=self.committed.get(TopicPartition(topic.name, number), -1),
                        committed_leader_epoch=-1,
                        metadata="",
                        error_code=0,
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
        return OffsetFetchResponse(version=version, topics=topics, error_code=0)

    def _metadata(self, request: Any, version: int) -> Any:
        self.metadata_requests += 1
        counts = self.partition_counts
        if counts is None:
            counts = {topic.name: 1 for topic in request.topics or ()}
        counts = {name: count for name, count in counts.items() if name not in self.topic_errors}
        names = list(counts) if request.topics is None else [topic.name for topic in request.topics]
        topics = [
            MetadataResponse.MetadataResponseTopic(
                error_code=self.topic_errors.get(name, 0 if name in counts else _UNKNOWN_TOPIC),
                name=name,
                is_internal=False,
                partitions=[
                    MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
                        error_code=0,
                        partition_index=number,
                        leader_id=number % len(self.peers),
                        leader_epoch=0,
                        replica_nodes=[0],
                        isr_nodes=[0],
                        offline_replicas=[],
                    )
                    for number in self.partition_repetitions * list(range(counts.get(name, 0)))
                ],
            )
            for name in names
        ]
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=number, host=peer.host, port=peer.port, rack=None)
            for number, peer in enumerate(self.peers)
        ]
        return MetadataResponse(
            version=version, throttle_time_ms=0, brokers=brokers, cluster_id="c", controller_id=0, topics=topics
        )


class FakeCluster:
    """Fake brokers. Each one names all running brokers in Metadata responses, and the first one leads the partition.

    Args:
        count: number of brokers.
        prepare: called with each new broker.
    """

    def __init__(self, count: int, prepare: Callable[[FakeBroker], object] = lambda _broker: None) -> None:
        self._prepare = prepare
        self.brokers: list[FakeBroker] = []
        for _ in range(count):
            self.add()

    def _name_all(self) -> None:
        for broker in self.brokers:
            broker.peers = [peer.endpoint for peer in self.brokers]

    def add(self) -> None:
        self.brokers.append(FakeBroker())
        self._prepare(self.brokers[-1])
        self._name_all()

    def remove(self, broker: FakeBroker) -> None:
        self.brokers.remove(broker)
        broker.close()
        self._name_all()

    def replace_some(self, rng: random.Random, refresh: Callable[[], object]) -> None:
        """Remove up to two brokers, but not the last one, and add some. ``refresh`` sends a Metadata request."""
        for _ in range(rng.randint(0, 2)):
            if len(self.brokers) > 1:
                self.remove(rng.choice(self.brokers))
        refresh()
        while len(self.brokers) < 3 and rng.random() < 0.7:
            self.add()
        refresh()

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()
