"""Fixtures of the tests of tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zkconsumer.devcluster import DevCluster, ExistingCluster
from zkconsumer.tools.cli import main

Cluster = DevCluster | ExistingCluster
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def admin(zkconsumer_cluster: Cluster) -> Any:
    return zkconsumer_cluster.admin


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a tool; return its exit code, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def at(zkconsumer_cluster: Cluster) -> str:
    return zkconsumer_cluster.zookeeper_connect
