"""Pytest fixtures, there by themselves in every project that has zkconsumer installed.

``zkconsumer_cluster`` is one cluster for the whole test session. To use an existing one, set
``ZKCONSUMER_TEST_ZOOKEEPER`` to its ``zookeeper.connect`` and ``ZKCONSUMER_TEST_BROKERS`` to its bootstrap
servers; tests must therefore use topics and groups of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from zkconsumer.devcluster.cluster import DevCluster, ExistingCluster


@pytest.fixture(scope="session")
def zkconsumer_cluster() -> Iterator[DevCluster | ExistingCluster]:
    """ZooKeeper and two brokers, for the whole session."""
    zookeeper = os.environ.get("ZKCONSUMER_TEST_ZOOKEEPER")
    if zookeeper:
        with ExistingCluster(zookeeper, os.environ.get("ZKCONSUMER_TEST_BROKERS", "")) as existing:
            yield existing
        return
    with DevCluster(brokers=2) as cluster:
        yield cluster
