"""Explain why no session can be established with the servers of ``zookeeper.connect``."""

from __future__ import annotations

import socket
import struct
import time

from kazoo.hosts import collect_hosts

from zkconsumer.net.host_names import resolve

#: Maximum seconds for all servers.
_TIMEOUT_S = 2.0

#: An ApiVersions request of version 0 with correlation id 1 and without a client id. Every broker since 0.10 answers
#: it, also before authentication, and ZooKeeper closes the connection.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def explain(hosts: str, timeout_property: str) -> str:
    """Connect to each server without a session; return what is wrong with each of them, and a remedy.

    Args:
        hosts: the value of ``zookeeper.connect``.
        timeout_property: the property that limits the time for the connection.
    """
    servers, _ = collect_hosts(hosts)
    problems = {f"{host}:{port}": _problem(host, port, _TIMEOUT_S / len(servers)) for host, port in servers}
    text = "; ".join(f"{server} {problem}" for server, problem in problems.items() if problem)
    if not text:
        return (
            "the servers accept connections, but no session; check that the ensemble has a quorum (a read-only server "
            f"does not accept consumers) and its TLS settings, or increase {timeout_property}"
        )
    return f"{text}; check zookeeper.connect, and that the ensemble is running"


def _problem(host: str, port: int, timeout_s: float) -> str:
    """Return what is wrong with a server, empty if it accepts connections and is not known to be something else."""
    deadline = time.monotonic() + timeout_s
    lookup = resolve(host, port)
    try:
        addresses = lookup.result(timeout_s)
    except (OSError, UnicodeError):
        lookup.cancel()
        return "is not the address of a host that can be resolved"
    try:
        timeout_s = max(0.1, deadline - time.monotonic()) / len(addresses)
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(_API_VERSIONS)
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            answer = connection.recv(8, socket.MSG_WAITALL)
    except ConnectionRefusedError:
        return "refuses the connection"
    except ConnectionError:
        return ""
    except TimeoutError:
        return "does not answer"
    except OSError as error:
        return f"is unreachable ({error.strerror})"
    is_broker = len(answer) == 8 and struct.unpack(">ii", answer)[1] == 1
    return "is a Kafka broker, not a ZooKeeper server" if is_broker else ""


__all__ = ["explain"]
