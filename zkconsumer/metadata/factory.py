"""The source of cluster metadata that a consumer's properties select."""

from __future__ import annotations

from zkconsumer.broker.security import Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.metadata.base import Cluster
from zkconsumer.metadata.bootstrap import BootstrapCluster, parse_bootstrap
from zkconsumer.metadata.zookeeper import ZooKeeperCluster
from zkconsumer.zookeeper.session import ZooKeeperSession


def cluster_of(config: ConsumerConfig, session: ZooKeeperSession | None, timeout: float) -> Cluster:
    """Create the source of metadata that a consumer's properties select.

    It is ``BootstrapCluster`` if ``bootstrap.servers`` is set, else ``ZooKeeperCluster``.

    Args:
        session: required without ``bootstrap.servers``.
        timeout: maximum seconds to wait for each broker.
    """
    if config.bootstrap_servers:
        assert config.client_id is not None
        return BootstrapCluster(
            parse_bootstrap(config.bootstrap_servers),
            config.client_id,
            timeout=timeout,
            poll_interval=config.metadata_max_age_ms / 1000,
            security=Security.from_config(config),
        )
    assert session is not None
    return ZooKeeperCluster(session, config.security_protocol)
