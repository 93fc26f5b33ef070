"""ZooKeeper clients, sessions that expire, and servers in unusual states."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from helpers.waiting import TIMEOUT_S
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.process import free_port
from zkconsumer.devcluster.servers import ZooKeeperServer

#: Options of a ZooKeeper client that reconnects after restarts of ZooKeeper. If it connects shortly before ZooKeeper
#: serves requests (see ``start_zookeeper``), it receives no response, and ``stop`` waits for up to the session timeout.
RECONNECTING: dict[str, Any] = {"timeout": 10, "connection_retry": {"max_tries": -1, "delay": 0.1, "backoff": 1}}


@contextlib.contextmanager
def zookeeper_client(connect: str, **options: Any) -> Iterator[KazooClient]:
    """Connect to ZooKeeper, and end the session at the end of the block."""
    client = KazooClient(connect, **options)
    client.start(timeout=TIMEOUT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def expire_session(connect: str, session: tuple[int, bytes]) -> int:
    """End the ZooKeeper session with an id and its password, and return the id."""
    with zookeeper_client(connect, client_id=session, timeout=30):
        return session[0]


def start_zookeeper(cluster: DevCluster) -> None:
    """Start the stopped ZooKeeper while the brokers are paused.

    ZooKeeper accepts connections shortly before it serves requests. A client that connects in between may get no
    response until its session timeout has elapsed. Brokers would consider their session expired and need most of a
    minute to recover.
    """
    if cluster.zookeeper.is_running:
        return
    alive = [broker for broker in cluster.brokers if broker.is_running]
    for broker in alive:
        broker.pause()
    try:
        cluster.zookeeper.start()
    finally:
        for broker in alive:
            broker.resume()


@contextlib.contextmanager
def zookeeper_that_only_reads(folder: Path) -> Iterator[str]:
    """Run one server of an ensemble of two without the other server; yield its address."""
    (folder / "zookeeper-data").mkdir()
    (folder / "zookeeper-data" / "myid").write_text("1")
    ensemble: dict[str, object] = {"initLimit": 5, "syncLimit": 5}
    for number in (1, 2):
        ensemble[f"server.{number}"] = f"127.0.0.1:{free_port()}:{free_port()}"
    server = ZooKeeperServer(folder, ["-Dreadonlymode.enabled=true"], ensemble)
    server.start()
    try:
        yield server.connect
    finally:
        server.kill()
