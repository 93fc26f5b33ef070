"""Tests that wrong arguments of the consumer classes are rejected when they are passed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zkconsumer
from zkconsumer import TopicPartition
from zkconsumer.argument_checks import check_integer, check_offsets
from zkconsumer.errors import ConfigurationError

#: The package without its types, because the tests pass arguments of wrong types.
ZK: Any = zkconsumer

CONFIG = ZK.ConsumerConfig.from_dict({"group.id": "g", "zookeeper.connect": "127.0.0.1:1"})


class HalfListener:
    """A listener with one of the two methods."""

    def before_releasing_partitions(self, partitions: object) -> None:
        pass


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: ZK.create_consumer("file.properties"), "config must be a ConsumerConfig, see from_dict and "),
        (lambda _: ZK.create_consumer({"sasl.password": "hidden"}), "got a value of type dict"),
        (
            lambda one: one.set_consumer_rebalance_listener("x"),
            "listener must have the methods before_releasing_partitions and before_starting_fetchers, got 'x' without",
        ),
        (
            lambda one: one.set_consumer_rebalance_listener(HalfListener()),
            "before_starting_fetchers, got a value of type HalfListener without before_starting_fetchers",
        ),
        (
            lambda one: one.set_consumer_rebalance_listener(ZK.ConsumerRebalanceListener),
            "listener must be an instance, got class ConsumerRebalanceListener",
        ),
        (lambda one: one.set_health_listener("x"), "listener must be a function or None, got 'x'"),
        (lambda one: one.create_message_streams("orders"), "topic_count must be a dict such as {'orders': 1}, got 'or"),
        (
            lambda one: one.create_message_streams({"t": 1}, value_decoder="utf-8"),
            "value_decoder must be a function or",
        ),
        (
            lambda one: one.create_message_streams({"t": 1}, key_decoder=1),
            "key_decoder must be a function or None, got 1",
        ),
        (
            lambda one: one.create_message_streams_by_filter("orders"),
            "topic_filter must be a Whitelist or Blacklist, go",
        ),
        (lambda _: ZK.Whitelist(None), "the regular expression must be a str, got None"),
        (lambda _: ZK.ConsumerConfig.from_properties(None), "path must be the path of a properties file, got None"),
        (
            lambda _: ZK.ConsumerConfig.from_properties({"a": 1}),
            "path must be the path of a properties file, got a value ",
        ),
        (lambda _: ZK.ConsumerConfig.from_properties("x", True), "overrides must be a dict, got True"),
        (lambda _: ZK.SimpleConsumer("h", "9092"), "port must be an integer between 1 and 65535, got '9092'"),
        (lambda _: ZK.SimpleConsumer(None, 9092), "host must be a str, got None"),
        (
            lambda _: ZK.SimpleConsumer("h", 9092).fetch("t", 1, "0"),
            "offset must be an integer between -9223372036854775807",
        ),
        (
            lambda _: ZK.SimpleConsumer("h", 9092).fetch("t", "1", 0),
            "partition must be an integer between 0 and 2147483647",
        ),
        (lambda _: ZK.SimpleConsumer("h", 9092).fetch(b"t", 1, 0), "topic must be a str, got b't'"),
        (lambda _: ZK.SimpleConsumer("h", 9092).metadata("orders"), "topics must be a list, got 'orders'"),
        (
            lambda _: ZK.SimpleConsumer("h", 9092).offset_for_time("t", 0, 1.5),
            "timestamp_ms must be an integer between -9223372036854775807 and",
        ),
        (
            lambda _: ZK.SimpleConsumer("h", 9092).commit_offsets("g", {"t": 1}),
            "a partition must be a TopicPartition such as TopicPartition('orders', 0), got 't'",
        ),
        (
            lambda _: ZK.SimpleConsumer("h", 9092).commit_offsets("g", {TopicPartition("t", 0): -1}),
            "offset of partition t-0 must be an integer between 0 and 9223372036854775807, got -1",
        ),
        (
            lambda _: ZK.SimpleConsumer("h", 9092).fetch_offsets("g", ["t"]),
            "a partition must be a TopicPartition such as ",
        ),
    ],
)
def test_invalid_argument_is_named(call: Callable[[Any], object], message: str) -> None:
    with ZK.create_consumer(CONFIG) as consumer, pytest.raises(ConfigurationError) as raised:
        call(consumer)

    assert message in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_integers_and_partitions_of_other_types_are_accepted() -> None:
    assert check_integer("x", np.int64(5), 0, 10) == 5
    assert type(check_integer("x", np.int64(5), 0, 10)) is int
    offsets = check_offsets({("t", np.int32(1)): np.int64(7)}, 10)
    assert offsets == {TopicPartition("t", 1): 7}
    assert [type(key) for key in offsets] == [TopicPartition]
