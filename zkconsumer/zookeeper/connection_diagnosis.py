"""Explains why no session can be established with the servers in ``zookeeper.connect``."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time

from kazoo.hosts import collect_hosts

from zkconsumer.message import Endpoint
from zkconsumer.net.host_names import resolve

#: Maximum total seconds for diagnosing all servers.
_TIMEOUT_S = 2.0

#: An ApiVersions v0 request with correlation id 1 and no client id. Brokers since Kafka 0.10 respond to it on listeners
#: without TLS, even before authentication, whereas ZooKeeper closes the connection.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


#: A command without TLS. ZooKeeper responds to it, even if the command is disabled.
_COMMAND = b"ruok"

_TLS, _NO_TLS = "requires TLS on this port", "does not use TLS on this port"


def explain(hosts: str, timeout_property: str, *, uses_tls: bool) -> str:
    """Connect to each server without opening a session; return a description of the problems found, and a remedy.

    Args:
        hosts: value of ``zookeeper.connect``.
        timeout_property: name of the property that sets the connection timeout.
        uses_tls: whether the client uses TLS.
    """
    servers, _ = collect_hosts(hosts)
    share_s = _TIMEOUT_S / len(servers)
    problems = {str(Endpoint(host, port)): _problem(host, port, share_s, uses_tls) for host, port in servers}
    text = "; ".join(f"{server} {problem}" for server, problem in problems.items() if problem)
    if not text:
        return (
            "the servers accept connections, but no session was established; check that the ensemble has a quorum "
            "(read-only servers do not accept consumers) and that its TLS settings match, or increase "
            f"{timeout_property}"
        )
    if set(problems.values()) & {_NO_TLS, _TLS}:
        return f"{text}; check zookeeper.connect and zookeeper.ssl.client.enable"
    return f"{text}; check zookeeper.connect and whether the ensemble is running"


def _problem(host: str, port: int, timeout_s: float, uses_tls: bool) -> str:
    """Return a description of a server's problem; empty if the server accepts connections and may be ZooKeeper."""
    deadline = time.monotonic() + timeout_s
    lookup = resolve(host, port)
    try:
        addresses = lookup.result(timeout_s)
    except (OSError, UnicodeError):
        lookup.cancel()
        return "could not be resolved"
    try:
        timeout_s = max(0.1, deadline - time.monotonic()) / len(addresses)
        if uses_tls:
            return _NO_TLS if _ask((host, port), _COMMAND, timeout_s, deadline) else ""
        answer = _ask((host, port), _API_VERSIONS, timeout_s, deadline)
        if len(answer) == 8 and struct.unpack(">ii", answer)[1] == 1:
            return "is a Kafka broker, not a ZooKeeper server"
        return "" if answer or not _has_tls((host, port), deadline) else _TLS
    except ConnectionRefusedError:
        return "refused the connection"
    except TimeoutError:
        return "did not respond"
    except OSError as error:
        return f"is unreachable ({error.strerror})"


def _ask(address: tuple[str, int], request: bytes, timeout_s: float, deadline: float) -> bytes:
    """Return the first bytes of the response; empty if the server closes the connection."""
    with socket.create_connection(address, timeout=timeout_s) as connection:
        try:
            connection.sendall(request)
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            return connection.recv(8, socket.MSG_WAITALL)
        except ConnectionError:
            return b""


def _has_tls(address: tuple[str, int], deadline: float) -> bool:
    """Return whether a server responds to the start of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    timeout_s = max(0.1, deadline - time.monotonic())
    try:
        return _ask(address, outgoing.read(), timeout_s, deadline)[:2] in (b"\x15\x03", b"\x16\x03")
    except OSError:
        return False


__all__ = ["explain"]
