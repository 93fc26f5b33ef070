"""Configurations of members, fetchers and connections to brokers."""

from __future__ import annotations

from collections.abc import Mapping

from zkconsumer import ConsumerConfig
from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.security import PLAINTEXT
from zkconsumer.devcluster import DevCluster, ExistingCluster
from zkconsumer.fetcher.fetch_settings import FetchSettings


def properties(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings with the names of properties: ``group_id`` becomes ``group.id``."""
    return {name.replace("_", "."): value for name, value in settings.items()}


def consumer_config(cluster: DevCluster | ExistingCluster, **settings: object) -> ConsumerConfig:
    """Return the configuration of a member that reads from the beginning; ``settings`` are properties."""
    defaults: dict[str, object] = {
        **cluster.consumer_properties,
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": 20_000,  # ends tests that wait for a record that never arrives
    }
    return ConsumerConfig.from_dict(defaults | properties(settings), strict=True)


def fetch_settings(**settings: object) -> FetchSettings:
    """Return the settings of fetcher threads; ``settings`` are properties."""
    required: dict[str, object] = {"group.id": "test", "zookeeper.connect": "none"}
    return FetchSettings.from_config(ConsumerConfig.from_dict(required | properties(settings), strict=True))


def plaintext(timeout_s: float = 30.0, client_id: str = "test") -> Connecting:
    """Return the settings of connections without encryption and authentication."""
    return Connecting(client_id, timeout_s, PLAINTEXT)
