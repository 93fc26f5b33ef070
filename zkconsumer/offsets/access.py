"""Access: the connections of a program that is not a member of a group, such as a tool."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from zkconsumer.broker.connect import Connecting
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
    """Connections to the ZooKeeper ensemble and the brokers of a configuration, for one thread.

    ``open_access`` opens them and closes all that were created.

    Args:
        connecting: how to connect to brokers; its timeout applies unless a method is given another one.

    Attributes:
        cluster: the brokers, topics and partitions.
    """

    def __init__(
        self, config: ConsumerConfig, connecting: Connecting, closing: contextlib.ExitStack, *, has_session: bool
    ) -> None:
        self._config = config
        self._connecting = connecting
        self._closing = closing
        self.cluster: Cluster = create_cluster(config, self.session if has_session else None, connecting)
        closing.callback(self.cluster.close)

    @cached_property
    def session(self) -> ZooKeeperSession:
        """The ZooKeeper session. Its first use opens it, unless ``open_access`` has."""
        session = ZooKeeperSession.from_config(self._config)
        session.start()
        self._closing.callback(session.close)
        return session

    def logs(self, timeout_s: float | None = None, *, read_committed: bool = False) -> LogOffsets:
        """Return a client for log start offsets and end offsets; see ``LogOffsets``."""
        logs = LogOffsets(self.cluster.brokers, self._within(timeout_s), read_committed=read_committed)
        self._closing.callback(logs.close)
        return logs

    def leaders(self, timeout_s: float | None = None) -> LeaderLookup:
        """Return a client that looks up the leaders of partitions; see ``LeaderLookup``."""
        lookup = LeaderLookup(self._within(timeout_s))
        self._closing.callback(lookup.close)
        return lookup

    def coordinator(self, timeout_s: float | None = None) -> GroupCoordinator:
        """Return a client for the offsets that the group has committed to Kafka; see ``GroupCoordinator``."""
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
        """Return the committed offsets of the group.

        Args:
            storage: value of ``offsets.storage``.
            dual_commit: value of ``dual.commit.enabled``.
            topic_ids: returns the ids of existing topics; by default those of ``cluster``, which its last lookup of
                partitions has found.
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
def open_access(config: ConsumerConfig, connecting: Connecting, *, has_session: bool = True) -> Iterator[Access]:
    """Connect to ZooKeeper, and to brokers when they are needed; close the connections at the end of the block.

    Args:
        connecting: how to connect to brokers; its timeout applies unless a method of ``Access`` is given another one.
        has_session: whether to connect to ZooKeeper now; required without ``bootstrap.servers``.
    """
    with contextlib.ExitStack() as closing:
        yield Access(config, connecting, closing, has_session=has_session)
