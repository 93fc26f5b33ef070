"""Tests of rejected connections: every TLS alert, failed verification, and ports that do or do not use TLS.

A rejection is an authentication error at once, with the properties to check. A connection that is closed, reset or
silent in a handshake is unreachable, and is retried.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from helpers.threads import InThread, in_thread

from zkconsumer import ConsumerConfig
from zkconsumer.broker.connect import Connecting
from zkconsumer.errors import AuthenticationError, BrokerUnavailableError, RetriableError, ZooKeeperUnavailableError
from zkconsumer.message import Endpoint
from zkconsumer.zookeeper.session import ZooKeeperSession

#: Numbers of fatal alerts, and a property or word in the error. Source: RFC 8446, RFC 5246, RFC 6066, RFC 7301.
CERTIFICATE, PROTOCOL, OTHER = "ssl.certificate.location", "protocol", ""
ALERTS = {
    10: OTHER,  # unexpected_message
    20: OTHER,  # bad_record_mac
    22: OTHER,  # record_overflow
    40: CERTIFICATE,  # handshake_failure
    42: CERTIFICATE,  # bad_certificate
    43: CERTIFICATE,  # unsupported_certificate
    44: CERTIFICATE,  # certificate_revoked
    45: CERTIFICATE,  # certificate_expired
    46: CERTIFICATE,  # certificate_unknown
    47: OTHER,  # illegal_parameter
    48: CERTIFICATE,  # unknown_ca
    49: CERTIFICATE,  # access_denied
    50: OTHER,  # decode_error
    51: CERTIFICATE,  # decrypt_error
    70: PROTOCOL,  # protocol_version
    71: PROTOCOL,  # insufficient_security
    86: PROTOCOL,  # inappropriate_fallback
    109: OTHER,  # missing_extension
    110: OTHER,  # unsupported_extension
    112: "host name",  # unrecognized_name
    113: CERTIFICATE,  # bad_certificate_status_response
    115: OTHER,  # unknown_psk_identity
    116: CERTIFICATE,  # certificate_required
    120: OTHER,  # no_application_protocol
}
#: Alerts of a server that has a problem of its own or is about to close the connection: internal_error, user_canceled.
TRANSIENT_ALERTS = (80, 90)

Serve = Callable[[socket.socket], None]


class Server:
    """Serves each connection with a function, until it is closed."""

    def __init__(self, serve: Serve) -> None:
        self.connections = 0
        self._serve = serve
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._accepting = in_thread(self._accept)
        self._serving: list[InThread] = []

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            accepted.settimeout(10)
            self._serving.append(in_thread(partial(self._talk, accepted)))

    def _talk(self, accepted: socket.socket) -> None:
        with accepted, contextlib.suppress(OSError):
            self._serve(accepted)

    def close(self) -> None:
        """Close the port, and wait until all connections are closed."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in [self._accepting, *self._serving]:
            one.result(20)


@pytest.fixture
def serve() -> Iterator[Callable[[Serve], Server]]:
    servers: list[Server] = []

    def start(function: Serve) -> Server:
        servers.append(Server(function))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


Properties = dict[str, object]


def connect_to_broker(port: int, properties: Properties, host: str = "127.0.0.1", timeout_s: float = 20.0) -> None:
    config = ConsumerConfig.from_dict({"zookeeper.connect": "z:1", "group.id": "g", **properties})
    channel = Connecting.from_config(config).with_timeout(timeout_s).channel(Endpoint(host, port))
    try:
        channel.connect()
    finally:
        channel.close()


def connect_to_zookeeper(port: int, properties: Properties, host: str = "127.0.0.1", timeout_s: float = 20.0) -> None:
    properties = {f"zookeeper.{name}": value for name, value in properties.items()}
    if properties.pop("zookeeper.security.protocol", "PLAINTEXT") == "SSL":
        properties["zookeeper.ssl.client.enable"] = True
    given: Properties = {"zookeeper.connect": f"{host}:{port}", "group.id": "g"}
    given["zookeeper.connection.timeout.ms"] = int(timeout_s * 1000)
    session = ZooKeeperSession.from_config(ConsumerConfig.from_dict(given | properties))
    try:
        session.start()
    finally:
        session.close()


PEERS = {"broker": connect_to_broker, "zookeeper": connect_to_zookeeper}
both = pytest.mark.parametrize("peer", PEERS)


def tls(authority: trustme.CA, folder: Path, **more: object) -> Properties:
    """Return the properties of a client that trusts an authority."""
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return {"security.protocol": "SSL", "ssl.ca.location": str(folder / "ca.pem"), **more}


def read_all(connection: socket.socket) -> None:
    """Read until the client closes the connection, without a response."""
    while connection.recv(1 << 16):
        pass


def send(content: bytes, *, reset: bool = False) -> Serve:
    """Return a function that waits for the first bytes, sends ``content``, and closes or resets the connection."""

    def talk(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(content)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        connection.shutdown(socket.SHUT_WR)
        read_all(connection)

    return talk


def alert(number: int, level: int = 2) -> bytes:
    """Return the record of an alert."""
    return bytes([0x15, 3, 3, 0, 2, level, number])


@pytest.mark.parametrize("number", ALERTS)
@both
def test_alert_is_authentication_error_at_once(
    peer: str, number: int, serve: Callable[[Serve], Server], authority: trustme.CA, tmp_path: Path
) -> None:
    server = serve(send(alert(number)))
    with pytest.raises(AuthenticationError) as raised:
        PEERS[peer](server.port, tls(authority, tmp_path))
    assert server.connections == 1, "it was not retried"
    text = str(raised.value)
    prefix = "zookeeper." if peer == "zookeeper" else ""
    enabled_by = "zookeeper.ssl.client.enable" if prefix else "security.protocol"
    expected = ALERTS[number].replace(CERTIFICATE, prefix + CERTIFICATE) or enabled_by
    assert expected in text
    assert "TLS handshake" in text
    assert "_ssl.c" not in text


@pytest.mark.parametrize("number", TRANSIENT_ALERTS)
@both
def test_transient_alert_is_retried(
    peer: str, number: int, serve: Callable[[Serve], Server], authority: trustme.CA, tmp_path: Path
) -> None:
    server = serve(send(alert(number)))
    with pytest.raises((BrokerUnavailableError, ZooKeeperUnavailableError)):
        PEERS[peer](server.port, tls(authority, tmp_path), timeout_s=0.5)


@pytest.mark.parametrize("way", ["closed", "reset", "closed after a record", "close_notify"])
@both
def test_interrupted_handshake_is_retried(
    way: str, peer: str, serve: Callable[[Serve], Server], authority: trustme.CA, tmp_path: Path
) -> None:
    content = {"closed after a record": b"\x16\x03\x03\x00\x7a\x02", "close_notify": alert(0, 1)}.get(way, b"")
    server = serve(send(content, reset=way == "reset"))
    with pytest.raises((BrokerUnavailableError, ZooKeeperUnavailableError)) as raised:
        PEERS[peer](server.port, tls(authority, tmp_path), timeout_s=0.5)
    assert "_ssl.c" not in str(raised.value)


@both
def test_silent_handshake_is_retried(
    peer: str, serve: Callable[[Serve], Server], authority: trustme.CA, tmp_path: Path
) -> None:
    server = serve(read_all)
    started = time.monotonic()
    with pytest.raises(RetriableError):
        PEERS[peer](server.port, tls(authority, tmp_path), timeout_s=0.5)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("content", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"220 mail ESMTP\r\n", bytes(100)])
@both
def test_port_without_tls_is_authentication_error(
    peer: str, content: bytes, serve: Callable[[Serve], Server], authority: trustme.CA, tmp_path: Path
) -> None:
    server = serve(send(content))
    with pytest.raises(AuthenticationError, match=r"security\.protocol|zookeeper\.ssl\.client\.enable"):
        PEERS[peer](server.port, tls(authority, tmp_path))


@pytest.mark.parametrize("number", [10, 40, 70, 80])
@both
def test_port_with_tls_is_authentication_error(peer: str, number: int, serve: Callable[[Serve], Server]) -> None:
    """A TLS server responds to a plaintext request with an alert of any number."""
    server = serve(send(alert(number)))
    with pytest.raises(AuthenticationError, match=r"requires TLS on this port; check the port and (\S*)") as raised:
        PEERS[peer](server.port, {})
    assert server.connections == 1
    assert str(raised.value).endswith("zookeeper.ssl.client.enable" if peer == "zookeeper" else "security.protocol")


def context(authority: trustme.CA, **settings: Any) -> ssl.SSLContext:
    """Return the context of a server with attributes."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(made)
    authority.configure_trust(made)
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def accept(made: ssl.SSLContext, *, close: bool = False) -> Serve:
    """Return a function that performs the handshake of a server, and reads until the client closes the connection."""

    def talk(connection: socket.socket) -> None:
        with made.wrap_socket(connection, server_side=True) as encrypted:
            while not close and encrypted.recv(1 << 16):
                pass

    return talk


V1_2, V1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize("given", ["none", "of another authority"])
@pytest.mark.parametrize("version", [V1_2, V1_3], ids=["TLS 1.2", "TLS 1.3"])
@both
def test_missing_client_certificate_is_named(
    peer: str,
    version: ssl.TLSVersion,
    given: str,
    serve: Callable[[Serve], Server],
    authority: trustme.CA,
    tmp_path: Path,
) -> None:
    """With TLS 1.3, the alert arrives after the handshake: at the first read, or the first write fails."""
    properties = tls(authority, tmp_path)
    if given != "none":
        certificate = trustme.CA().issue_cert("client")
        certificate.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
        certificate.private_key_pem.write_to_path(tmp_path / "client.key")
        properties["ssl.certificate.location"] = str(tmp_path / "client.pem")
        properties["ssl.key.location"] = str(tmp_path / "client.key")
    made = context(authority, verify_mode=ssl.CERT_REQUIRED, minimum_version=version, maximum_version=version)
    server = serve(accept(made))
    with pytest.raises(AuthenticationError, match=r"TLS handshake .*ssl\.certificate\.location"):
        PEERS[peer](server.port, properties)


@both
def test_protocol_mismatch_is_named(
    peer: str, serve: Callable[[Serve], Server], authority: trustme.CA, tmp_path: Path
) -> None:
    made = context(authority)
    made.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256:@SECLEVEL=0")
    made.maximum_version = V1_2
    made.set_ciphers("AES128-SHA256")  # no client of Python 3.11 or later offers it by default
    server = serve(accept(made))
    with pytest.raises(AuthenticationError, match="TLS handshake .*cipher"):
        PEERS[peer](server.port, tls(authority, tmp_path))


@pytest.mark.parametrize("wrong", ["authority", "host name"])
@both
def test_untrusted_certificate_is_named(
    peer: str, wrong: str, serve: Callable[[Serve], Server], authority: trustme.CA, tmp_path: Path
) -> None:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issuer = trustme.CA() if wrong == "authority" else authority
    issuer.issue_cert("other.test" if wrong == "host name" else "127.0.0.1").configure_cert(made)
    server = serve(accept(made))
    with pytest.raises(
        AuthenticationError, match=r"is not trusted: .*ssl\.ca\.location and .*identification"
    ) as raised:
        PEERS[peer](server.port, tls(authority, tmp_path))
    assert str(raised.value).count("check ") == 1


@pytest.mark.parametrize("peer", ["broker", "zookeeper"])
def test_connection_closed_after_handshake_is_retried(
    peer: str, serve: Callable[[Serve], Server], authority: trustme.CA, tmp_path: Path
) -> None:
    """As servers do that shut down."""
    server = serve(accept(context(authority), close=True))
    with pytest.raises((BrokerUnavailableError, ZooKeeperUnavailableError)):
        PEERS[peer](server.port, tls(authority, tmp_path), timeout_s=0.5)


@pytest.mark.parametrize("host", ["server.test.", "server.test", "127.0.0.1"])
@both
def test_dot_after_host_name_is_not_part_of_certificate(
    host: str,
    peer: str,
    serve: Callable[[Serve], Server],
    authority: trustme.CA,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An absolute name is used for the lookup alone."""
    names: list[str | None] = []
    looked_up: list[str] = []
    original = socket.getaddrinfo

    def getaddrinfo(name: Any, *arguments: Any, **more: Any) -> Any:
        if more.get("flags") != socket.AI_NUMERICHOST:
            looked_up.append(name)
            name = "127.0.0.1"
        return original(name, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("server.test", "127.0.0.1").configure_cert(made)
    made.sni_callback = lambda _socket, name, _context: names.append(name)
    server = serve(accept(made, close=True))
    with pytest.raises((BrokerUnavailableError, ZooKeeperUnavailableError)):  # after the handshake
        PEERS[peer](server.port, tls(authority, tmp_path), host, timeout_s=0.5)
    assert set(names) == {"server.test" if host.startswith("server") else None}
    assert set(looked_up) <= {host}
