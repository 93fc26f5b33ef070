"""Tests of the errors that calls of ZooKeeper raise, and of the kazoo client, without a server."""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faults.faults import full_backlog
from helpers.threads import in_thread
from helpers.waiting import wait_for
from kazoo import exceptions as kazoo_errors
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState

from zkconsumer.errors import (
    AuthenticationError,
    ClosedError,
    ConfigurationError,
    OwnershipLostError,
    ZkConsumerError,
    ZooKeeperUnavailableError,
)
from zkconsumer.zookeeper.connection import BadVersion, Connection, NodeExists, NodeMissing
from zkconsumer.zookeeper.kazoo_client import Client
from zkconsumer.zookeeper.security import ZooKeeperSecurity
from zkconsumer.zookeeper.session import ZooKeeperSession

SESSION_TIMEOUT = 12.0


@pytest.fixture
def connection() -> Iterator[Connection]:
    made = Connection(
        "a.test:2181,b.test:2182/root",
        session_timeout_s=SESSION_TIMEOUT,
        call_timeout_s=0.1,
        security=ZooKeeperSecurity(),
    )
    yield made
    made.client.stop()
    made.client.close()


@pytest.mark.parametrize(
    ("failure", "expected", "text"),
    [
        (kazoo_errors.NodeExistsError(), NodeExists, "znode /p already exists"),
        (kazoo_errors.NoNodeError(), NodeMissing, "znode /p or its parent does not exist"),
        (kazoo_errors.BadVersionError(), BadVersion, "znode /p was modified concurrently"),
        (kazoo_errors.AuthFailedError(), AuthenticationError, "authentication with ZooKeeper at .* failed; check"),
        (kazoo_errors.ConnectionLoss(), ZooKeeperUnavailableError, "is unreachable or did not respond within 0.1 s"),
        (kazoo_errors.ConnectionClosedError(), ZooKeeperUnavailableError, "is unreachable"),
        (KazooTimeoutError(), ZooKeeperUnavailableError, "is unreachable"),
        (kazoo_errors.SessionExpiredError(), OwnershipLostError, "session expired"),
        (kazoo_errors.MarshallingError("x"), ZooKeeperUnavailableError, r"failed: MarshallingError\('x'\)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_failed_call_raises_error_of_package(
    failure: Exception, expected: type[Exception], text: str, connection: Connection
) -> None:
    result = connection.client.handler.async_result()
    result.set_exception(failure)
    with pytest.raises(expected, match=text) as raised:
        connection.wait(result, "/p")
    assert type(raised.value) is expected
    assert connection.poll_response()


def test_denied_access_names_znode(connection: Connection) -> None:
    result = connection.client.handler.async_result()
    result.set_exception(kazoo_errors.NoAuthError())
    with pytest.raises(ZkConsumerError, match="access to znode /p (was )?denied by its ACL"):
        connection.wait(result, "/p")


def test_response_counts_once(connection: Connection) -> None:
    assert not connection.poll_response()
    result = connection.client.handler.async_result()
    with pytest.raises(ZooKeeperUnavailableError):
        connection.wait(result)
    assert not connection.poll_response(), "there was no response"
    result.set("value")
    assert connection.wait(result) == "value"
    assert [connection.poll_response(), connection.poll_response()] == [True, False]


def test_call_without_connection_shows_failed_login(connection: Connection) -> None:
    with pytest.raises(
        ZooKeeperUnavailableError,
        match=r"not connected to ZooKeeper at 'a.test:2181,b.test:2182/root'; reconnecting in the background; retry",
    ):
        connection.connected_client()
    connection.client.login_error = "wrong password"
    with pytest.raises(ZooKeeperUnavailableError, match="the last authentication failed: wrong password"):
        connection.connected_client()
    assert "failed: wrong password; check zookeeper.sasl" in str(connection.authentication_error())
    assert str(connection.access_denied_error("")).startswith("access to a znode ")
    connection.drop()


def test_connected_client_accepts_calls(connection: Connection) -> None:
    connection.client._session_callback(KeeperState.CONNECTED)
    assert connection.is_connected
    assert connection.connected_client() is connection.client
    connection.client._session_callback(KeeperState.CONNECTING)
    assert not connection.is_connected


@pytest.mark.parametrize("hosts", ["h:x", "h:99999", ":2181"])
def test_malformed_hosts_are_rejected(hosts: str) -> None:
    with pytest.raises(ConfigurationError, match="must be comma-separated host:port pairs"):
        Connection(hosts, session_timeout_s=1, call_timeout_s=1, security=ZooKeeperSecurity())


# ---- the kazoo client --------------------------------------------------------------------------------


@pytest.fixture
def client(connection: Connection) -> Client:
    connection.client.randomize_hosts = False
    return connection.client


Names = dict[str, Callable[[], list[str]]]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Functions that return the addresses of names."""
    made: Names = {}
    original = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *arguments: Any, **more: Any) -> Any:
        if more.get("flags") or host not in made:
            return original(host, port, *arguments, **more)
        return [found for address in made[host]() for found in original(address, port, type=socket.SOCK_STREAM)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return made


def unknown() -> list[str]:
    raise socket.gaierror(socket.EAI_NONAME, "unknown")


def test_servers_share_half_of_session_timeout(client: Client, names: Names) -> None:
    names |= {"a.test": lambda: ["10.0.0.1", "10.0.0.2"], "b.test": lambda: ["10.0.0.3"]}
    assert client.attempt_timeout_s == SESSION_TIMEOUT / 2
    assert client._connection._expand_client_hosts() == [
        ("a.test", "10.0.0.1", 2181),
        ("a.test", "10.0.0.2", 2181),
        ("b.test", "10.0.0.3", 2182),
    ]
    assert client.attempt_timeout_s == SESSION_TIMEOUT / 6
    client.granted_session_timeout_s = 3.0
    assert client.attempt_timeout_s == 0.5


def test_servers_get_more_time_in_later_rounds(client: Client, names: Names) -> None:
    names |= {"a.test": lambda: [f"10.0.0.{number}" for number in range(5)], "b.test": unknown}
    client.granted_session_timeout_s = 10.0
    allowed = []
    for _ in range(7):
        client._connection._expand_client_hosts()
        allowed.append(client.attempt_timeout_s)
    assert allowed == [1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0]
    client.on_login()
    assert client.attempt_timeout_s == 1.0


def test_new_addresses_replace_former_ones(client: Client, names: Names) -> None:
    names |= {"a.test": lambda: ["10.0.0.1", "10.0.0.2"], "b.test": unknown}
    assert [server[1] for server in client._connection._expand_client_hosts()] == ["10.0.0.1", "10.0.0.2"]
    names |= {"a.test": lambda: ["10.0.0.4"], "b.test": lambda: ["10.0.0.3"]}
    assert [server[1] for server in client._connection._expand_client_hosts()] == ["10.0.0.4", "10.0.0.3"]
    names |= {"a.test": unknown, "b.test": lambda: ["10.0.0.5"]}
    assert [server[1] for server in client._connection._expand_client_hosts()] == ["10.0.0.4", "10.0.0.5"]


@pytest.mark.timeout(30)
def test_silent_name_server_leaves_former_addresses(
    client: Client, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    end = threading.Event()
    names |= {"a.test": lambda: ["10.0.0.1"], "b.test": lambda: ["10.0.0.3"]}
    client._connection._expand_client_hosts()
    names |= {"a.test": lambda: ["10.0.0.9"][end.wait(60) :], "b.test": lambda: ["10.0.0.4"]}
    client.granted_session_timeout_s = 2.0
    try:
        found = client._connection._expand_client_hosts()
    finally:
        end.set()
    assert [server[1] for server in found] == ["10.0.0.1", "10.0.0.4"]
    assert "Cannot resolve a.test: the name server does not respond" in caplog.text


@pytest.mark.timeout(30)
def test_silent_name_server_delays_all_names_once(client: Client, names: Names) -> None:
    end = threading.Event()
    names |= {"a.test": lambda: [str(end.wait(60))], "b.test": lambda: [str(end.wait(60))]}
    client.granted_session_timeout_s = 4.0
    started = time.monotonic()
    try:
        assert client._connection._expand_client_hosts() == []
        assert 0.5 <= time.monotonic() - started < 1.5
    finally:
        end.set()


def test_servers_are_tried_in_random_order(client: Client, names: Names) -> None:
    names |= {"a.test": lambda: [f"10.0.0.{n}" for n in range(1, 9)], "b.test": lambda: ["10.0.0.9"]}
    client.randomize_hosts = True
    found = [tuple(client._connection._expand_client_hosts()) for _ in range(10)]
    assert len(set(found)) > 1
    assert len({frozenset(order) for order in found}) == 1


def closed() -> Exception:
    error = RuntimeError("handshake")
    error.__cause__ = kazoo_errors.ConnectionDropped("closed")
    return error


def test_first_login_is_not_repeated_after_rejection(client: Client) -> None:
    assert isinstance(client.on_login_failure("h:1", closed()), kazoo_errors.ConnectionDropped)
    assert (client.is_rejected, client.login_error) == (False, "handshake: closed")
    assert isinstance(client.on_login_failure("h:1", ValueError("wrong password")), kazoo_errors.AuthFailedError)
    assert (client.is_rejected, client.login_error) == (True, "wrong password")


def test_session_is_abandoned_after_failed_logins(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.on_login()
    for _ in range(2):
        assert isinstance(client.on_login_failure("h:1", ValueError("wrong")), kazoo_errors.ConnectionDropped)
    assert caplog.text.count("zookeeper_login_failed") == 1
    client._failing_since -= SESSION_TIMEOUT
    assert isinstance(client.on_login_failure("h:1", ValueError()), kazoo_errors.SessionExpiredError)
    assert client.login_error == "authentication was rejected (ValueError)"
    assert isinstance(client.on_login_failure("h:1", ValueError()), kazoo_errors.ConnectionDropped)
    client.on_login()
    assert (client.login_error, client.is_rejected) == ("", False)
    assert isinstance(client.on_login_failure("h:1", ValueError()), kazoo_errors.ConnectionDropped)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_attempt_to_connect_takes_its_share_of_time(timeout: float | None, client: Client) -> None:
    client.granted_session_timeout_s = 0.4
    with full_backlog() as port, pytest.raises(TimeoutError):
        client.handler.create_connection(("127.0.0.1", port), timeout=timeout)


@pytest.mark.timeout(30)
def test_server_without_response_takes_its_share_of_time(client: Client) -> None:
    client.granted_session_timeout_s = 0.4
    started = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(KazooTimeoutError):
            client._connection._connect("a.test", *silent.getsockname())
        client._connection._socket.close()
    assert time.monotonic() - started < 4, "kazoo would wait for half of the session timeout"


def connect(client: Client, timeout_ms: int) -> None:
    """Connect to a server that grants a session timeout; 0 means that the session has expired."""
    content = struct.pack(">iiqi16sb", 0, timeout_ms, 1, 16, b"", 0)

    def grant() -> None:
        accepted, _ = server.accept()
        with accepted:
            accepted.recv(1024)
            accepted.sendall(struct.pack(">i", len(content)) + content)

    with socket.create_server(("127.0.0.1", 0)) as server:
        granting = in_thread(grant)
        try:
            client._connection._connect("a.test", *server.getsockname())
        finally:
            granting.result(10)
            client._connection._socket.close()


@pytest.mark.timeout(30)
def test_expired_session_keeps_granted_timeout(client: Client) -> None:
    """Until the next session, the client uses the timeout for its attempts to connect."""
    connect(client, 3000)
    assert client.granted_session_timeout_s == 3.0
    with pytest.raises(kazoo_errors.SessionExpiredError):
        connect(client, 0)
    assert client.granted_session_timeout_s == 3.0


@pytest.mark.timeout(30)
@pytest.mark.parametrize("granted_to", ["new sessions", "no sessions", "all sessions"])
def test_rejected_session_is_replaced_after_its_timeout(
    granted_to: str, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that is behind the client closes the connection; so does one without a quorum, to all clients."""

    def serve() -> None:
        for _ in range(3 if granted_to != "all sessions" else 2):
            accepted, _ = server.accept()
            with accepted:
                session_id = struct.unpack_from(">iqiq", accepted.recv(1024), 4)[3]
                if granted_to == "all sessions" or (granted_to == "new sessions" and session_id == 0):
                    content = struct.pack(">iiqi16sb", 0, 12_000, 2, 16, b"", 0)
                    accepted.sendall(struct.pack(">i", len(content)) + content)

    def attempt() -> None:
        try:
            client._connection._connect("a.test", *server.getsockname())
        finally:
            client._connection._socket.close()

    connect(client, int(SESSION_TIMEOUT * 1000))
    client._session_callback(KeeperState.CONNECTING)
    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = in_thread(serve)
        if granted_to == "all sessions":
            attempt()
            client._session_callback(KeeperState.CONNECTING)
            client._disconnected_at -= SESSION_TIMEOUT
            attempt()
            assert client._session_id == 2
            assert not client.has_outlived_session
        else:
            with pytest.raises(kazoo_errors.ConnectionDropped):
                attempt()  # the session may exist
            assert not client.has_outlived_session
            client._disconnected_at -= SESSION_TIMEOUT
            is_replaced = granted_to == "new sessions"
            with pytest.raises(kazoo_errors.SessionExpiredError if is_replaced else kazoo_errors.ConnectionDropped):
                attempt()
            assert client._session_id == 1, "kazoo resets it when it handles the error"
            assert ("zookeeper_session_rejected" in caplog.text) == is_replaced
        serving.result(10)


@pytest.mark.timeout(60)
def test_close_ends_attempt_to_connect() -> None:
    """The only server drops packets; kazoo would wait for it for half of the session timeout."""
    with full_backlog() as port:
        session = ZooKeeperSession(
            f"127.0.0.1:{port}", session_timeout_s=100.0, connection_timeout_s=100.0, events=queue.SimpleQueue()
        )
        starting = in_thread(session.start)
        wait_for(lambda: session._client.resolved, what="kazoo connects")
        started = time.monotonic()
        session.close()
        with pytest.raises(ClosedError):
            starting.result(10)
        assert time.monotonic() - started < 10
