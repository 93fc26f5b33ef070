"""Ephemeral znode that prevents concurrent instances of an application, if ``zookeeper.connect`` is set.

Without ZooKeeper, the metadata of committed offsets serves this purpose; see ``markers``.
"""

from __future__ import annotations

import os
import socket
import threading

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import OwnershipLostError, StreamsError
from zkconsumer.retry import polling
from zkconsumer.zookeeper.connection import NodeExists
from zkconsumer.zookeeper.registry import GroupPaths
from zkconsumer.zookeeper.session import ZooKeeperSession

#: Seconds between two attempts to create the znode.
_POLL_S = 0.2


class ApplicationOwner:
    """Holds the ephemeral znode of an application. Used by one thread.

    Args:
        config: consumer properties with ``zookeeper.connect``.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self._group = config.group_id
        self._path = GroupPaths(config.group_id).application
        self._session = ZooKeeperSession.from_config(config)
        #: Longer than the session timeout: the znode of a killed application exists until its session expires.
        self._timeout_s = 2 * config.zookeeper_session_timeout_s

    def acquire(self) -> None:
        """Create the znode.

        Raises:
            StreamsError: another instance of the application holds the znode.
            ZooKeeperUnavailableError: ZooKeeper did not respond.
        """
        self._session.start()
        self._session.lease.acquire()
        never = threading.Event()  # never set, so the wait is not interrupted
        if not polling(self._timeout_s, interval_s=_POLL_S, stop=never)(self._create):
            node = self._session.znodes.get(self._path)
            owner = "another process" if node is None else node.data.decode(errors="replace")
            raise StreamsError(
                f"application {self._group!r} is already running in {owner}, which holds znode {self._path}; stop it "
                "first"
            )

    def find_loss(self) -> OwnershipLostError | None:
        """Return an error if the ZooKeeper session's lease expired; otherwise, return None.

        After the lease expires, another instance may own the znode.
        """
        if self._session.lease.is_held:
            return None
        return OwnershipLostError(
            f"application {self._group!r}: the lease of the ZooKeeper session expired, and another instance may own "
            f"znode {self._path}; check that ZooKeeper is reachable, and restart the application"
        )

    def close(self) -> None:
        """Close the ZooKeeper session, which deletes the znode."""
        self._session.close()

    def _create(self) -> bool:
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        try:
            self._session.znodes.create_ephemeral(self._path, owner.encode())
        except NodeExists:
            return False
        return True
