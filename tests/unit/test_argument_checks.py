"""Tests that wrong arguments of the consumer classes are rejected when they are passed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest

import zkconsumer
from zkconsumer import TopicPartition, checked_arguments
from zkconsumer.argument_checks import check_attribute, check_flag, check_integer, check_offsets, describe
from zkconsumer.checked_arguments import check_values
from zkconsumer.errors import ConfigurationError, ZkConsumerError
from zkconsumer.topology import Processor, Record, Topology

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
        (lambda _: ZK.create_consumer("no-such.properties"), "no-such.properties"),
        (lambda _: ZK.create_consumer({"group.id": ""}), "Missing required property 'zookeeper.connect'"),
        (lambda _: ZK.create_consumer(7), "config must be a ConsumerConfig, a dict of properties, or a path, got 7"),
        (lambda _: ZK.ZookeeperConsumerConnector({"sasl.password": "hidden"}), "got a value of type dict"),
        (lambda one: one.stream([]), "topics must contain at least one topic name"),
        (lambda one: one.stream(7), "topics must be a topic name or a list of topic names, got 7"),
        (lambda one: one.stream(["orders", "a,b"]), "'a,b'"),
        (lambda one: one.stream(["orders", 7]), "got 7"),
        (lambda one: one.stream("orders", value_decoder="utf-8"), "value_decoder must be a function or None"),
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


class Ignore(Processor):
    """A processor without output."""

    def process(self, record: Record) -> None:
        pass


@pytest.mark.parametrize("value", [True, False])
def test_numpy_booleans_are_accepted(value: bool) -> None:
    assert check_flag("x", np.bool_(value)) is value
    assert check_values("f()", {"x": "bool"}, {"x": np.bool_(value)}) == {"x": value}
    Topology().add_source("s", "t").add_processor("p", Ignore, "s", keeps_keys=cast(bool, np.bool_(value)))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (5, 5.0),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 2), 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(5), 5.0),
        (10**400, 1e9),
        (Fraction(10**400), 1e9),
        (Decimal("1e400"), 1e9),
        (float("inf"), 1e9),
    ],
    ids=["int", "Decimal", "Fraction", "float32", "int64", "large int", "large Fraction", "large Decimal", "inf"],
)
def test_all_real_numbers_are_durations(value: Any, seconds: float) -> None:
    checked = check_values("wait()", {"timeout_s": "float"}, {"timeout_s": value})
    assert checked == {"timeout_s": seconds}
    assert type(checked["timeout_s"]) is float


def test_longest_duration_is_a_valid_timeout() -> None:
    done = threading.Event()
    done.set()
    assert done.wait(check_values("wait()", {"s": "float"}, {"s": float("inf")})["s"] + 60)


@pytest.mark.parametrize(
    "value",
    [-(10**400), Fraction(-(10**400)), Decimal("sNaN"), Decimal("NaN"), Decimal(-1), -(10**5000), 1j, np.bool_(True)],
    ids=["large int", "large Fraction", "sNaN", "NaN", "Decimal", "int with many digits", "complex", "bool_"],
)
def test_other_durations_are_rejected(value: Any) -> None:
    with pytest.raises(ZkConsumerError, match="timeout_s must be a non-negative number, got "):
        check_values("wait()", {"timeout_s": "float"}, {"timeout_s": value})


def test_integers_with_many_digits_are_described() -> None:
    assert describe(10**5000) == "a value of type int"


class Source:
    """An object whose attribute ``metrics`` must not be read by a check."""

    @property
    def metrics(self) -> object:
        raise AssertionError("the property was called")


class Proxy:
    """Forwards attributes to an object."""

    def __init__(self, target: object) -> None:
        self._target = target

    def __getattr__(self, name: str) -> object:
        return getattr(self._target, name)


class Plain:
    """An object whose attribute ``metrics`` is set in the constructor."""

    def __init__(self, metrics: object) -> None:
        self.metrics = metrics


@pytest.mark.parametrize("wrap", [lambda one: one, weakref.proxy, Proxy], ids=["object", "weakref", "getattr"])
def test_objects_and_proxies_with_an_attribute_are_accepted(wrap: Callable[[object], object]) -> None:
    plain, source, missing = Plain({}), Source(), Plain(None)
    check_attribute("x", wrap(plain), "metrics", "a source")
    if wrap is not Proxy:
        check_attribute("x", wrap(source), "metrics", "a source")
    with pytest.raises(ConfigurationError, match="x must be a source, got a value of type "):
        check_attribute("x", wrap(missing), "metrics", "a source")


def test_iterator_of_allowed_changes_is_named() -> None:
    """An iterator could be read only once."""
    with pytest.raises(ZkConsumerError, match="allow must be a collection of .*, got a value of type list_iterator"):
        check_values("StreamsApp", {"allow": "Collection[AllowedChange]"}, {"allow": iter([])})


@pytest.mark.parametrize("name", checked_arguments._MODULES)
def test_class_of_each_rule_is_found(name: str) -> None:
    assert checked_arguments._load(name).__name__ == name
