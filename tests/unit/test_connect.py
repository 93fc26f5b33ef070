"""Tests of the settings of connections, and of the connections of programs that are not members of a group."""

from __future__ import annotations

import pytest
from helpers.fake_broker import FakeBroker

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.security import PLAINTEXT
from zkconsumer.errors import ClosedError
from zkconsumer.fetcher.fetch_settings import FetchSettings
from zkconsumer.log_ends import LATEST
from zkconsumer.offsets.access import open_access

SECURE = {
    "group.id": "g",
    "zookeeper.connect": "localhost:1",
    "client.id": "c",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "user",
    "sasl.password": "secret",
    "socket.timeout.ms": 7000,
    "socket.receive.buffer.bytes": 4096,
}


def test_settings_are_those_of_properties() -> None:
    connecting = Connecting.from_config(ConsumerConfig.from_dict(SECURE))

    assert (connecting.client_id, connecting.timeout_s, connecting.receive_buffer) == ("c", 7.0, -1)
    assert (connecting.security.protocol, connecting.security.username) == ("SASL_PLAINTEXT", "user")
    assert "secret" not in repr(connecting)


def test_only_fetches_have_the_receive_buffer() -> None:
    settings = FetchSettings.from_config(ConsumerConfig.from_dict(SECURE))

    assert settings.connecting.receive_buffer == 4096


def test_other_timeout_keeps_security() -> None:
    connecting = Connecting.from_config(ConsumerConfig.from_dict(SECURE))

    assert connecting.with_timeout(1.0) == Connecting("c", 1.0, connecting.security)
    assert connecting.with_timeout(1.0).security is connecting.security


def test_missing_security_is_an_error() -> None:
    with pytest.raises(TypeError, match="security"):
        Connecting("c", 1.0)  # type: ignore[call-arg]


def test_access_closes_its_connections() -> None:
    with FakeBroker() as broker:
        broker.partition_counts, broker.end = {"t": 1}, 5
        config = ConsumerConfig.from_dict(
            {"group.id": "g", "zookeeper.connect": "none", "bootstrap.servers": str(broker.endpoint)}
        )
        partition = TopicPartition("t", 0)
        with open_access(config, Connecting("c", 5.0, PLAINTEXT), has_session=False) as access:
            cluster, leaders, coordinator = access.cluster, access.leaders(), access.coordinator()
            assert cluster.partitions(["t"]) == {"t": [0]}
            assert access.logs().offsets([partition], LATEST) == {partition: 5}
            assert leaders.leaders(cluster.brokers(), [partition]).keys() == {partition}
            assert coordinator.fetch_offsets([partition]) == {partition: -1}
        for request in (
            lambda: cluster.partitions(["t"]),
            lambda: leaders.leaders(cluster.brokers(), [partition]),
            lambda: coordinator.fetch_offsets([partition]),
        ):
            with pytest.raises(ClosedError):
                request()
