"""Tests of the error messages for invalid configuration and unreachable servers."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import pytest

from zkconsumer import ConsumerConfig, create_consumer
from zkconsumer.devcluster.process import free_port
from zkconsumer.errors import ConfigurationError, ZooKeeperUnavailableError

GOOD = {"group.id": "g", "zookeeper.connect": "127.0.0.1:2181"}


MALFORMED = [
    ("auto.commit.enable", "yes"),
    ("auto.commit.enable", "True "),
    ("auto.commit.interval.ms", "60s"),
    ("auto.offset.reset", "earliest"),
    ("consumer.timeout.ms", "-2"),
    ("fetch.message.max.bytes", "1e6"),
    ("fetch.message.max.bytes", "0"),
    ("fetch.message.max.bytes", "2147483648"),
    ("fetch.message.max.bytes", "9" * 5000),
    ("fetch.min.bytes", "-1"),
    ("num.consumer.fetchers", ""),
    ("offsets.storage", "mysql"),
    ("partition.assignment.strategy", "sticky"),
    ("rebalance.max.retries", "0"),
    ("zookeeper.session.timeout.ms", "six"),
    ("group.id", "a group"),
    ("group.id", "a/b"),
    ("group.id", ""),
    ("group.id", ".."),
    ("consumer.id", "ä"),
    ("client.id", "a,b"),
]


@pytest.mark.parametrize(("key", "value"), MALFORMED, ids=[f"{key}={value[:12]}" for key, value in MALFORMED])
def test_malformed_property_is_named_with_its_value(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ConsumerConfig.from_dict(GOOD | {key: value})
    assert key in str(caught.value)
    assert value[:100].strip() in str(caught.value)


@pytest.mark.parametrize("key", GOOD)
def test_missing_required_property_is_named(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Missing required property '{key}'"):
        ConsumerConfig.from_dict({name: value for name, value in GOOD.items() if name != key})


def test_unknown_property_is_logged_with_nearest_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "zkconsumer"):
        ConsumerConfig.from_dict(GOOD | {"zookeper.connect": "h:1", "external.thing": "1"})
    [record] = caplog.records
    assert "zookeper.connect" in record.getMessage()
    assert "'zookeeper.connect'" in record.getMessage()
    with pytest.raises(
        ConfigurationError, match="unknown property 'zookeper.connect'; did you mean 'zookeeper.connect'"
    ):
        ConsumerConfig.from_dict(GOOD | {"zookeper.connect": "h:1"}, strict=True)


@pytest.mark.parametrize("content", [b"group.id=\\u00zz\n", None], ids=["bad escape", "no file"])
def test_unreadable_properties_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "consumer.properties"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="consumer.properties"):
        ConsumerConfig.from_properties(path)


@pytest.mark.parametrize("connect", ["", " ", "127.0.0.1:port", "127.0.0.1:99999", "127.0.0.1:2181/../x"])
def test_malformed_zookeeper_connect_is_rejected_at_construction(connect: str) -> None:
    threads = threading.active_count()
    with pytest.raises(ConfigurationError, match=r"zookeeper\.connect"):
        create_consumer(ConsumerConfig.from_dict(GOOD | {"zookeeper.connect": connect})).create_message_streams({})
    assert threading.active_count() == threads


@pytest.mark.parametrize("host", ["127.0.0.1", "there-is-no-such-host.invalid"])
def test_missing_zookeeper_fails_within_connection_timeout(host: str) -> None:
    properties = GOOD | {"zookeeper.connect": f"{host}:{free_port()}", "zookeeper.connection.timeout.ms": 500}
    one = create_consumer(ConsumerConfig.from_dict(properties))
    started = time.monotonic()

    with pytest.raises(ZooKeeperUnavailableError, match=f"{host}:.*zookeeper.connect"):
        one.create_message_streams({"topic": 1})

    assert time.monotonic() - started < 5
