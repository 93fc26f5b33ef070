"""Access: connections for a program that is not a group member, such as a tool."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.known_brokers import KnownBrokers
from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.config import ConsumerConfig
from zkconsumer.metadata.base import Cluster
from zkconsumer.metadata.factory import create_cluster
from zkconsumer.offsets.base import Offsets
from zkconsumer.offsets.coordinator import GroupCoordinator
from zkconsumer.offsets.factory import create_offsets
from zkconsumer.zookeeper.session import ZooKeeperSession


class Access:
    """Connections to the configured ZooKeeper ensemble and brokers. Used by one thread.

    Use ``open_access`` to create an instance, and to close all of its connections.

    Args:
        config: consumer configuration.
        connecting: connection settings for brokers; methods can override the timeout.
        closing: exit stack that receives the ``close`` methods of all connections.
        has_session: whether to open a ZooKeeper session immediately.
        known: see ``create_cluster``.

    Attributes:
        cluster: cluster metadata.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        connecting: Connecting,
        closing: contextlib.ExitStack,
        *,
        has_session: bool,
        known: KnownBrokers | None = None,
    ) -> None:
        self._config = config
        self._connecting = connecting
        self._closing = closing
        self.cluster: Cluster = create_cluster(config, self.session if has_session else None, connecting, known)
        closing.callback(self.cluster.close)

    @cached_property
    def session(self) -> ZooKeeperSession:
        """The ZooKeeper session, opened on first use unless ``open_access`` has opened it."""
        session = ZooKeeperSession.from_config(self._config)
        session.start()
        self._closing.callback(session.close)
        return session

    def logs(self, timeout_s: float | None = None, *, read_committed: bool = False) -> LogOffsets:
        """Return a client that looks up log start offsets and end offsets; see ``LogOffsets``."""
        logs = LogOffsets(self.cluster.brokers, self._within(timeout_s), read_committed=read_committed)
        self._closing.callback(logs.close)
        return logs

    def leaders(self, timeout_s: float | None = None) -> LeaderLookup:
        """Return a client that looks up partition leaders; see ``LeaderLookup``."""
        lookup = LeaderLookup(self._within(timeout_s))
        self._closing.callback(lookup.close)
        return lookup

    def coordinator(self, timeout_s: float | None = None) -> GroupCoordinator:
        """Return a client for the group's committed offsets in Kafka; see ``GroupCoordinator``."""
        coordinator = GroupCoordinator(self._config.group_id, self.cluster.brokers, self._within(timeout_s))
        self._closing.callback(coordinator.close)
        return coordinator

    def offsets(
        self,
        storage: str,
        *,
        dual_commit: bool = False,
        topic_ids: Callable[[], Mapping[str, str]] | None = None,
    ) -> Offsets:
        """Return a client for the group's committed offsets.

        Args:
            storage: value of ``offsets.storage``.
            dual_commit: value of ``dual.commit.enabled``.
            topic_ids: function that returns the ids of existing topics; by default, it returns the ids found by the
                last partition lookup of ``cluster``.
        """
        offsets = create_offsets(
            self._config,
            self.session,
            self.cluster.brokers,
            self._connecting,
            storage=storage,
            dual_commit=dual_commit,
            topic_ids=topic_ids or (lambda: self.cluster.topic_ids),
        )
        self._closing.callback(offsets.close)
        return offsets

    def _within(self, timeout_s: float | None) -> Connecting:
        return self._connecting if timeout_s is None else self._connecting.with_timeout(timeout_s)


@contextlib.contextmanager
def open_access(
    config: ConsumerConfig, connecting: Connecting, *, has_session: bool = True, known: KnownBrokers | None = None
) -> Iterator[Access]:
    """Context manager that connects to ZooKeeper, and to brokers on demand, and closes the connections on exit.

    Args:
        config: consumer configuration.
        connecting: connection settings for brokers; methods of ``Access`` can override the timeout.
        has_session: whether to open a ZooKeeper session immediately; must be true if ``bootstrap.servers`` is not set.
        known: brokers named by the last Metadata response, which later connections to the same cluster can reuse.
    """
    with contextlib.ExitStack() as closing:
        yield Access(config, connecting, closing, has_session=has_session, known=known)
