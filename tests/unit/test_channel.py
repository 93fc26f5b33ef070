"""Tests of BrokerChannel with a faulty peer, over real sockets and with hand-made responses."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.configurations import plaintext
from helpers.fake_broker import FrameServer
from helpers.teardown import started
from helpers.threads import in_thread
from helpers.waiting import wait_for
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from zkconsumer import TopicPartition
from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.fetch_request import FetchRequest
from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.devcluster.process import free_port
from zkconsumer.errors import BrokerUnavailableError, ClosedError, UnsupportedBrokerError, ZkConsumerError
from zkconsumer.message import Endpoint

#: Takes API key, version and correlation id of a request; returns the response with its size, None to disconnect.
Answer = Callable[[int, int, int], bytes | None]

API_VERSIONS, FETCH = 18, 1


def framed(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation) + body


def api_versions(correlation: int, *, error: int = 0, version: int = 0, newest_fetch: int = 11) -> bytes:
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=newest)
        for key, newest in ((FETCH, newest_fetch), (3, 9), (API_VERSIONS, 2))
    ]
    response = ApiVersionsResponse(version=version, error_code=error, api_keys=keys, throttle_time_ms=0)
    return framed(correlation, bytes(response.encode()))


class Peer(FrameServer):
    """A server that keeps API key and version of each request.

    Attributes:
        connection: connection of the last request.
    """

    def __init__(self, answer: Answer) -> None:
        self.requests: list[tuple[int, int]] = []
        self.connection: socket.socket | None = None
        self._answer = answer
        super().__init__(self._response)

    def _response(self, frame: bytes, connection: socket.socket) -> bytes | None:
        key, version, correlation = struct.unpack_from(">hhi", frame, 4)
        self.connection = connection
        self.requests.append((key, version))
        return self._answer(key, version, correlation)


@pytest.fixture
def peer() -> Iterator[Callable[[Answer], Peer]]:
    with started(Peer, Peer.close) as start:
        yield start


@pytest.fixture
def channel() -> Iterator[Callable[..., BrokerChannel]]:
    def make(endpoint: Endpoint, timeout: float = 5.0) -> BrokerChannel:
        return plaintext(timeout).channel(endpoint)

    with started(make, BrokerChannel.close) as start:
        yield start


def fetch(channel: BrokerChannel) -> protocol.FetchResult:
    request = FetchRequest({TopicPartition("t", 0): (0, 1000)}, max_wait_ms=1, min_bytes=1, read_committed=False)
    with channel.exchange(request) as frame:
        return protocol.read_fetch_response(frame, request.version)


def fetched(records: bytes, version: int = 11) -> bytes:
    data = FetchResponse.FetchableTopicResponse.PartitionData(
        partition_index=0, error_code=0, high_watermark=9, aborted_transactions=None, records=records
    )
    topics = [FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])]
    response = FetchResponse(version=version, throttle_time_ms=0, error_code=0, session_id=0, responses=topics)
    return bytes(response.encode())


def broker(answer_to_fetch: Callable[[int], bytes | None]) -> Answer:
    """Return the answers of a peer that negotiates versions like a broker."""
    return lambda key, version, correlation: (
        api_versions(correlation, version=version) if key == API_VERSIONS else answer_to_fetch(correlation)
    )


# ---- valid responses -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 3_000_000])
def test_records_are_read_into_separate_buffers(
    size: int, peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]
) -> None:
    records = bytes(range(256)) * (size // 256 + 1)
    one = channel(peer(broker(lambda correlation: framed(correlation, fetched(records[:size])))).endpoint)

    for _ in range(2):
        [data] = fetch(one).partitions
        assert bytes(data.records) == records[:size]


def test_versions_are_negotiated_once_per_connection(
    peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]
) -> None:
    server = peer(broker(lambda correlation: framed(correlation, fetched(b""))))
    one = channel(server.endpoint)

    fetch(one)
    fetch(one)
    one.disconnect()
    fetch(one)

    assert [key for key, _ in server.requests] == [API_VERSIONS, FETCH, FETCH, API_VERSIONS, FETCH]
    assert {version for key, version in server.requests if key == FETCH} == {11}


def test_older_request_version_is_used(peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]) -> None:
    def answer(key: int, version: int, correlation: int) -> bytes:
        if key == API_VERSIONS:
            return api_versions(correlation, error=35) if version > 2 else api_versions(correlation, version=version)
        return framed(correlation, fetched(b"x"))

    server = peer(answer)
    one = channel(server.endpoint)

    assert bytes(fetch(one).partitions[0].records) == b"x"
    assert [version for key, version in server.requests if key == API_VERSIONS][-1] == 2


def test_broker_rejecting_api_versions_is_unsupported(
    peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]
) -> None:
    one = channel(peer(lambda _key, _version, correlation: api_versions(correlation, error=58)).endpoint)

    with pytest.raises(UnsupportedBrokerError, match="rejected the ApiVersions request: SASL_AUTHENTICATION_FAILED "):
        one.connect()


# ---- faulty responses ----------------------------------------------------------------------------------


def test_refused_connection_names_address(channel: Callable[..., BrokerChannel]) -> None:
    endpoint = Endpoint("127.0.0.1", free_port())

    with pytest.raises(BrokerUnavailableError, match=f"could not connect to broker {endpoint}"):
        channel(endpoint).connect()


def test_non_broker_peer_is_detected(peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]) -> None:
    one = channel(peer(lambda *_: b"HTTP/1.1 400 Bad Request\r\n\r\n").endpoint)

    with pytest.raises(BrokerUnavailableError, match="did not send a valid Kafka response"):
        one.connect()


def test_response_of_other_version_is_rejected(
    peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]
) -> None:
    one = channel(peer(lambda _key, _version, correlation: api_versions(correlation, version=0)).endpoint)

    with pytest.raises(ZkConsumerError, match=str(one.endpoint)):
        one.connect()


def test_response_to_other_request_is_rejected(
    peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]
) -> None:
    one = channel(peer(broker(lambda correlation: framed(correlation + 1, fetched(b"x")))).endpoint)

    with pytest.raises(BrokerUnavailableError, match="correlation id"):
        fetch(one)


def test_closed_connection_is_reported_and_reopened(
    peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]
) -> None:
    answers: list[Any] = [lambda _: None, lambda correlation: framed(correlation, fetched(b"x"))]
    server = peer(broker(lambda correlation: answers.pop(0)(correlation)))
    one = channel(server.endpoint)

    with pytest.raises(BrokerUnavailableError, match="the broker closed the connection"):
        fetch(one)

    assert bytes(fetch(one).partitions[0].records) == b"x"
    assert server.connections == 2


def test_request_timeout_names_the_timeout(peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]) -> None:
    one = channel(peer(lambda *_: b"").endpoint, timeout=0.2)
    started = time.monotonic()

    with pytest.raises(BrokerUnavailableError, match=r"no complete response within 0\.2 s"):
        one.connect()

    assert time.monotonic() - started < 3


@pytest.mark.parametrize("piece", [1, 1000])
def test_deadline_covers_whole_response(
    piece: int, peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]
) -> None:
    """Each piece arrives in time, but all of them together do not."""
    slow: list[Peer] = []
    gave_up = threading.Event()

    def trickle(correlation: int) -> bytes | None:
        connection = slow[0].connection
        assert connection is not None
        response = framed(correlation, fetched(bytes(1000 * piece)))
        for start in range(0, len(response), piece):
            connection.sendall(response[start : start + piece])
            if gave_up.wait(0.05):
                break
        return None

    slow.append(peer(broker(trickle)))
    one = channel(slow[0].endpoint, timeout=0.5)
    one.connect()
    started = time.monotonic()
    try:
        with pytest.raises(BrokerUnavailableError, match=r"no complete response within 0\.5 s"):
            fetch(one)
    finally:
        gave_up.set()
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("sent", [100, 200_000])
def test_deadline_covers_records_that_stop(
    sent: int, peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]
) -> None:
    """The peer sends the first ``sent`` bytes of a large response, and no more."""
    one = channel(peer(broker(lambda correlation: framed(correlation, fetched(bytes(1 << 20)))[:sent])).endpoint, 0.5)
    one.connect()
    started = time.monotonic()

    with pytest.raises(BrokerUnavailableError, match=r"no complete response within 0\.5 s"):
        fetch(one)

    assert time.monotonic() - started < 5


def test_lookup_divides_its_time_among_silent_brokers(peer: Callable[..., Peer]) -> None:
    silent = [peer(lambda *_: b"") for _ in range(8)]
    lookup = LeaderLookup(plaintext(0.8))
    started = time.monotonic()
    with pytest.raises(BrokerUnavailableError, match="no broker is available: .*; check that the brokers"):
        lookup.metadata([one.endpoint for one in silent], None)
    assert time.monotonic() - started < 5
    lookup.close()
    wait_for(lambda: all(one.connections for one in silent), what="each broker has accepted a connection")


def test_response_shorter_than_its_fields_is_rejected(
    peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]
) -> None:
    whole = fetched(b"some records")
    sizes = iter(range(len(whole)))
    one = channel(peer(broker(lambda correlation: framed(correlation, whole[: next(sizes)]))).endpoint)

    for _ in range(len(whole)):
        with pytest.raises(BrokerUnavailableError):
            fetch(one)


def test_connection_broken_within_response_is_reported(
    peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]
) -> None:
    whole = fetched(b"some records")
    sizes = iter(range(0, len(whole) + 8, 5))
    broken: list[Peer] = []

    def answer(correlation: int) -> bytes | None:
        part = framed(correlation, whole)[: next(sizes)]
        connection = broken[0].connection
        assert connection is not None
        connection.sendall(part)
        return None

    broken.append(peer(broker(answer)))
    one = channel(broken[0].endpoint)

    for _ in range(0, len(whole) + 8, 5):
        with pytest.raises(BrokerUnavailableError, match="closed the connection"):
            fetch(one)


def test_bytes_after_response_are_reported(peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]) -> None:
    one = channel(peer(broker(lambda correlation: framed(correlation, fetched(b"records") + b"more"))).endpoint)

    with pytest.raises(BrokerUnavailableError, match="response to FetchRequest: 4 bytes follow its last field"):
        fetch(one)


def test_unrequested_bytes_before_response_are_rejected(
    peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]
) -> None:
    server = peer(broker(lambda correlation: framed(correlation, fetched(b"x")) + b"unrequested"))
    one = channel(server.endpoint)
    assert bytes(fetch(one).partitions[0].records) == b"x"

    with pytest.raises(BrokerUnavailableError, match="did not send a valid Kafka response"):
        fetch(one)


@contextlib.contextmanager
def claims(frame: Callable[[int], bytes]) -> Iterator[Endpoint]:
    """Listen like a broker without ApiVersions, and disconnect after the first part of a response."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                request = connection.recv(1 << 16)
                connection.sendall(frame(struct.unpack_from(">i", request, 8)[0]))

        server = in_thread(serve)
        yield Endpoint("127.0.0.1", listening.getsockname()[1], has_api_versions=False)
        server.result()


@pytest.mark.parametrize(
    ("size", "reason"), [((1 << 31) - 1, "the limit is 104857600 bytes"), (90 << 20, "closed the connection")]
)
def test_claimed_size_of_response_uses_no_memory(size: int, reason: str, channel: Callable[..., BrokerChannel]) -> None:
    with claims(lambda correlation: struct.pack(">ii", size, correlation) + bytes(100_000)) as endpoint:
        one = channel(endpoint)
        tracemalloc.start()
        try:
            with pytest.raises(BrokerUnavailableError, match=reason):
                one.request(protocol.metadata_request(["t"]))
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()


def resident_peak() -> int:
    """Return the peak of the resident memory since ``reset_peak``."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_claimed_size_of_records_uses_no_memory(channel: Callable[..., BrokerChannel]) -> None:
    size = 1 << 30
    head = fetched(b"", version=0)[:-4] + struct.pack(">i", size)

    def frame(correlation: int) -> bytes:
        return struct.pack(">ii", 4 + len(head) + size, correlation) + head + bytes(100_000)

    with claims(frame) as endpoint:
        one = channel(endpoint)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = resident_peak()
        with pytest.raises(BrokerUnavailableError, match="closed the connection"):
            fetch(one)
        assert resident_peak() - before < 16 << 20


def test_large_response_is_read_completely(peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]) -> None:
    names = [f"topic-{number:05}" for number in range(20_000)]
    topics = [
        MetadataResponse.MetadataResponseTopic(error_code=0, name=name, is_internal=False, partitions=[])
        for name in names
    ]

    def answer(key: int, version: int, correlation: int) -> bytes:
        if key == API_VERSIONS:
            return api_versions(correlation, version=version)
        response = MetadataResponse(version=version, brokers=[], cluster_id="", controller_id=0, topics=topics)
        return framed(correlation, b"\0" + bytes(response.encode()))

    response = channel(peer(answer).endpoint).request(protocol.metadata_request(None))
    assert [topic.name for topic in response.topics] == names


# ---- closing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [0, 100, 200_000])
def test_close_ends_request_in_another_thread(
    sent: int, peer: Callable[..., Peer], channel: Callable[..., BrokerChannel]
) -> None:
    server = peer(broker(lambda correlation: framed(correlation, fetched(bytes(1 << 20)))[:sent]))
    one = channel(server.endpoint, timeout=30)
    waiting = in_thread(lambda: fetch(one))
    wait_for(lambda: (FETCH, 11) in server.requests)

    one.close()

    with pytest.raises(ClosedError):
        waiting.result(5)
    with pytest.raises(ClosedError):
        fetch(one)


@pytest.fixture
def deaf() -> Iterator[socket.socket]:
    """Return a listening socket to which nobody can connect: packets are dropped."""
    with socket.socket() as listening, contextlib.ExitStack() as waiting:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(3):  # until the queue of the kernel is full
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        yield listening


def test_close_ends_connect_in_another_thread(deaf: socket.socket, channel: Callable[..., BrokerChannel]) -> None:
    mine = channel(Endpoint(*deaf.getsockname()), timeout=30)
    connecting = in_thread(mine.connect)
    wait_for(lambda: mine._socket is not None)

    mine.close()

    with pytest.raises(ClosedError):
        connecting.result(5)
    assert mine._socket is None


def test_address_that_drops_packets_leaves_time_for_others(
    deaf: socket.socket,
    peer: Callable[..., Peer],
    channel: Callable[..., BrokerChannel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = peer(broker(lambda _: None))
    addresses = [deaf.getsockname(), (server.endpoint.host, server.endpoint.port)]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: found)

    channel(Endpoint("two.example", 1), timeout=2).connect()

    wait_for(lambda: server.connections == 1)


@pytest.fixture
def silent_name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Make the resolution of names block until the test ends; returns the names that are being resolved."""
    names: list[str] = []
    end = threading.Event()
    original = socket.getaddrinfo

    def getaddrinfo(host: str, *arguments: Any, **more: Any) -> Any:
        if not host.endswith(".test") or more.get("flags"):
            return original(host, *arguments, **more)
        names.append(host)
        end.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield names
    end.set()


@pytest.mark.timeout(30)
def test_deadline_covers_name_resolution(silent_name_server: list[str], channel: Callable[..., BrokerChannel]) -> None:
    for _ in range(3):
        with pytest.raises(BrokerUnavailableError, match=r"b\.test:1: the host name was not resolved within 0\.2 s"):
            channel(Endpoint("b.test", 1), timeout=0.2).connect()

    assert silent_name_server == ["b.test"], "all of them wait for one thread"


@pytest.mark.timeout(30)
def test_close_ends_name_resolution_in_another_thread(
    silent_name_server: list[str], channel: Callable[..., BrokerChannel]
) -> None:
    one = channel(Endpoint("c.test", 1), timeout=60)
    connecting = in_thread(one.connect)
    wait_for(lambda: silent_name_server)

    one.close()

    with pytest.raises(ClosedError):
        connecting.result(5)


def test_unknown_host_name_is_reported(channel: Callable[..., BrokerChannel]) -> None:
    with pytest.raises(BrokerUnavailableError, match=r"could not connect to broker b\.invalid:1: .*[Nn]ame"):
        channel(Endpoint("b.invalid", 1)).connect()


def test_close_keeps_descriptor_until_unused(channel: Callable[..., BrokerChannel], peer: Callable[..., Peer]) -> None:
    # Otherwise a new connection could reuse the file descriptor, and the thread would wait for that connection.
    answering = threading.Event()
    server = peer(broker(lambda correlation: framed(correlation, fetched(b"x")) if answering.wait(20) else None))
    one = channel(server.endpoint)
    request = FetchRequest({TopicPartition("t", 0): (0, 1000)}, max_wait_ms=1, min_bytes=1, read_committed=False)
    answering.set()
    with pytest.raises(ClosedError), one.exchange(request) as frame:  # noqa: PT012
        sock = one._socket
        assert sock is not None
        in_thread(one.close).result()
        assert sock.fileno() >= 0
        frame.read(frame.remaining)
        fetch(one)
    assert sock is not None
    assert sock.fileno() < 0


def test_close_is_idempotent(channel: Callable[..., BrokerChannel]) -> None:
    one = channel(Endpoint("127.0.0.1", 1))

    one.close()
    one.close()

    with pytest.raises(ClosedError):
        one.connect()
