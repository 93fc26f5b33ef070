"""pytest plugin that provides the fixture ``zkconsumer_cluster`` wherever zkconsumer is installed.

All tests of a session use the same cluster, so each test should create its own topics and groups. To use an
existing cluster, set ``ZKCONSUMER_TEST_ZOOKEEPER`` to its ``zookeeper.connect`` and ``ZKCONSUMER_TEST_BROKERS`` to its
``bootstrap.servers``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from zkconsumer.devcluster.cluster import DevCluster, ExistingCluster


@pytest.fixture(scope="session")
def zkconsumer_cluster() -> Iterator[DevCluster | ExistingCluster]:
    """Yield a cluster with two brokers, or an existing cluster, for the whole test session."""
    zookeeper = os.environ.get("ZKCONSUMER_TEST_ZOOKEEPER")
    if zookeeper:
        with ExistingCluster(zookeeper, os.environ.get("ZKCONSUMER_TEST_BROKERS", "")) as existing:
            yield existing
        return
    with DevCluster(brokers=2) as cluster:
        yield cluster
