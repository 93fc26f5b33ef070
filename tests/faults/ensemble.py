"""An ensemble of three ZooKeeper servers, each pair of which is connected through proxies."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path

from helpers.waiting import wait_for

from zkconsumer.devcluster.process import free_port
from zkconsumer.devcluster.servers import ZooKeeperServer

from .faults import Cable

#: ``syncLimit`` in ticks of half a second: for this long a follower serves its clients after it has lost its leader.
_SYNC_LIMIT = 40


class Ensemble:
    """Three servers; ``with`` stops them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self.servers: list[ZooKeeperServer] = []
        self._cables: dict[tuple[int, int], list[Cable]] = {}

    def __enter__(self) -> Ensemble:
        ports = [(free_port(), free_port()) for _ in range(3)]
        for source, target in permutations(range(3), 2):
            self._cables[source, target] = [self._stack.enter_context(Cable(port)) for port in ports[target]]
        for number in range(3):
            folder = self._folder / f"server-{number}"
            (folder / "zookeeper-data").mkdir(parents=True)
            (folder / "zookeeper-data" / "myid").write_text(str(number + 1))
            members = {}
            for other in range(3):
                quorum, election = (
                    ports[other] if other == number else [cable.port for cable in self._cables[number, other]]
                )
                members[f"server.{other + 1}"] = f"127.0.0.1:{quorum}:{election}"
            extra = {"initLimit": 20, "syncLimit": _SYNC_LIMIT, **members}
            server = ZooKeeperServer(folder, extra=extra)
            self.servers.append(server)
            self._stack.callback(server.stop)
            server.start(wait=False)
        wait_for(lambda: sorted(map(mode, self.servers)) == ["follower", "follower", "leader"], 60, what="a leader")
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    @property
    def leader(self) -> ZooKeeperServer:
        """The leader."""
        return next(server for server in self.servers if mode(server) == "leader")

    @property
    def follower(self) -> ZooKeeperServer:
        """One of the followers."""
        return next(server for server in self.servers if mode(server) == "follower")

    def separate(self, one: ZooKeeperServer, other: ZooKeeperServer) -> None:
        """Cut the connections between two servers."""
        first, second = self.servers.index(one), self.servers.index(other)
        for cable in self._cables[first, second] + self._cables[second, first]:
            cable.cut()


def mode(server: ZooKeeperServer) -> str:
    """Return ``leader`` or ``follower``; "" if the server has no quorum."""
    try:
        with socket.create_connection(("127.0.0.1", server.port), 2) as sock:
            sock.sendall(b"srvr")
            answer = b"".join(iter(lambda: sock.recv(4096), b"")).decode()
    except OSError:
        return ""
    return next((line.partition(": ")[2] for line in answer.splitlines() if line.startswith("Mode: ")), "")
