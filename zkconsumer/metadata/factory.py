"""Creates the metadata source selected by a consumer's configuration."""

from __future__ import annotations

from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.known_brokers import KnownBrokers
from zkconsumer.config import ConsumerConfig
from zkconsumer.metadata.base import Cluster
from zkconsumer.metadata.bootstrap import BootstrapCluster, parse_bootstrap
from zkconsumer.metadata.zookeeper import ZooKeeperCluster
from zkconsumer.zookeeper.session import ZooKeeperSession


def create_cluster(
    config: ConsumerConfig,
    session: ZooKeeperSession | None,
    connecting: Connecting,
    known: KnownBrokers | None = None,
) -> Cluster:
    """Create a ``BootstrapCluster`` if ``bootstrap.servers`` is set, otherwise a ``ZooKeeperCluster``.

    Args:
        config: consumer configuration.
        session: ZooKeeper session, required unless ``bootstrap.servers`` is set.
        connecting: connection settings; the timeout limits a whole lookup, across all brokers.
        known: brokers named by the last Metadata response, for a ``BootstrapCluster``.
    """
    if config.bootstrap_servers:
        servers = parse_bootstrap(config.bootstrap_servers)
        return BootstrapCluster(servers, connecting, poll_interval_s=config.metadata_max_age_s, known=known)
    assert session is not None
    return ZooKeeperCluster(session, config.security_protocol)
