"""The source of cluster metadata that a consumer's properties select."""

from __future__ import annotations

from zkconsumer.broker.connect import Connecting
from zkconsumer.config import ConsumerConfig
from zkconsumer.metadata.base import Cluster
from zkconsumer.metadata.bootstrap import BootstrapCluster, parse_bootstrap
from zkconsumer.metadata.zookeeper import ZooKeeperCluster
from zkconsumer.zookeeper.session import ZooKeeperSession


def create_cluster(config: ConsumerConfig, session: ZooKeeperSession | None, connecting: Connecting) -> Cluster:
    """Create the source of metadata that a consumer's properties select.

    It is ``BootstrapCluster`` if ``bootstrap.servers`` is set, else ``ZooKeeperCluster``.

    Args:
        session: required without ``bootstrap.servers``.
        connecting: its timeout is for a lookup, with all brokers together.
    """
    if config.bootstrap_servers:
        servers = parse_bootstrap(config.bootstrap_servers)
        return BootstrapCluster(servers, connecting, poll_interval_s=config.metadata_max_age_s)
    assert session is not None
    return ZooKeeperCluster(session, config.security_protocol)
