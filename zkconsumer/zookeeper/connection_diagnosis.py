"""Explains why no session can be established with the servers in ``zookeeper.connect``."""

from __future__ import annotations

import socket
import struct
import time

from kazoo.hosts import collect_hosts

from zkconsumer.net.host_names import resolve

#: Maximum total seconds for diagnosing all servers.
_TIMEOUT_S = 2.0

#: An ApiVersions v0 request with correlation id 1 and no client id. Brokers since Kafka 0.10 respond to it on listeners
#: without TLS, even before authentication, whereas ZooKeeper closes the connection.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def explain(hosts: str, timeout_property: str) -> str:
    """Connect to each server without opening a session; return a description of the problems found, and a remedy.

    Args:
        hosts: value of ``zookeeper.connect``.
        timeout_property: name of the property that sets the connection timeout.
    """
    servers, _ = collect_hosts(hosts)
    problems = {f"{host}:{port}": _problem(host, port, _TIMEOUT_S / len(servers)) for host, port in servers}
    text = "; ".join(f"{server} {problem}" for server, problem in problems.items() if problem)
    if not text:
        return (
            "the servers accept connections, but no session was established; check that the ensemble has a quorum "
            "(read-only servers do not accept consumers) and that its TLS settings match, or increase "
            f"{timeout_property}"
        )
    return f"{text}; check zookeeper.connect and whether the ensemble is running"


def _problem(host: str, port: int, timeout_s: float) -> str:
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
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(_API_VERSIONS)
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            answer = connection.recv(8, socket.MSG_WAITALL)
    except ConnectionRefusedError:
        return "refused the connection"
    except ConnectionError:
        return ""
    except TimeoutError:
        return "did not respond"
    except OSError as error:
        return f"is unreachable ({error.strerror})"
    is_broker = len(answer) == 8 and struct.unpack(">ii", answer)[1] == 1
    return "is a Kafka broker, not a ZooKeeper server" if is_broker else ""


__all__ = ["explain"]
