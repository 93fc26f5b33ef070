"""Options that name topics, partitions or brokers that do not exist. The tests make the calls that Spark makes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import numbers, produce
from helpers.znodes import members
from kazoo.client import KazooClient
from pyspark.sql.types import StructType

from zkconsumer.devcluster.process import free_port
from zkconsumer.errors import BrokerUnavailableError, ConfigurationError
from zkconsumer.spark.batch import ZkConsumerBatchReader
from zkconsumer.spark.offset import INITIAL
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.factory import create_planner

pytestmark = pytest.mark.timeout(60)

Options = Callable[..., dict[str, str]]

UNKNOWN = [
    (
        {"NAME": {"77": 1}},
        "startingOffsets names partition 77 of topic 'NAME', but the query reads partitions 0, 1 of this topic",
    ),
    ({"nope": {"0": 1}}, "startingOffsets names topic 'nope', but the query reads NAME"),
]


def plan(options: dict[str, str], seen: dict[str, Any] = INITIAL) -> dict[str, Any]:
    planner = create_planner(SourceOptions.parse(options), seen)
    try:
        planner.start()
        return planner.plan(seen)
    finally:
        planner.close()


def batch_reader(options: dict[str, str]) -> ZkConsumerBatchReader:
    return ZkConsumerBatchReader(options, 2, StructType())


@pytest.mark.parametrize(("wanted", "message"), UNKNOWN)
def test_query_rejects_unknown_names_in_starting_offsets(
    wanted: dict[str, Any], message: str, topic: Topics, options: Options, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=2)
    starting = json.dumps(wanted).replace("NAME", name)
    for membership in ("none", "group"):
        with pytest.raises(ConfigurationError) as caught:
            plan(options(name, membership=membership, startingOffsets=starting))
        assert message.replace("NAME", name) in str(caught.value)
    assert members(zk, group) == []


def test_known_names_in_starting_options_are_accepted(
    zkconsumer_cluster: Cluster, topic: Topics, options: Options
) -> None:
    name = topic(partitions=2)
    produce(zkconsumer_cluster.admin, name, 0, numbers(0, 10))
    starting = json.dumps({name: {"0": 4, "1": -2}})
    assert plan(options(name, startingOffsets=starting))["ranges"] == {name: {"0": [4, 10], "1": [0, 0]}}
    times = json.dumps({name: {"5": 1}})
    with pytest.raises(ConfigurationError, match="option startingOffsetsByTimestamp names partition 5"):
        plan(options(name, startingOffsetsByTimestamp=times, membership="none"))


def test_query_with_checkpoint_ignores_starting_options(
    zkconsumer_cluster: Cluster, topic: Topics, options: Options, group: str
) -> None:
    name = topic()
    produce(zkconsumer_cluster.admin, name, 0, numbers(0, 10))
    first = plan(options(name, startingOffsets="earliest"))
    produce(zkconsumer_cluster.admin, name, 0, numbers(10, 20))
    second = plan(options(name, startingOffsets='{"nope":{"0":1}}'), first)
    assert second["ranges"] == {name: {"0": [10, 20]}}


def test_batch_read_of_missing_topic_is_rejected(topic: Topics, options: Options) -> None:
    name = topic(partitions=2)
    with pytest.raises(ConfigurationError, match="topic 'no-such-topic' does not exist; check the option subscribe"):
        batch_reader(options(f"{name},no-such-topic")).partitions()
    assigned = options(name, subscribe=None, assign=json.dumps({name: [0, 9]}))
    with pytest.raises(ConfigurationError, match=f"topic '{name}' has no partition 9"):
        batch_reader(assigned).partitions()
    with pytest.raises(ConfigurationError, match="option endingOffsets names topic 'nope'"):
        batch_reader(options(name, endingOffsets='{"nope":{"0":1}}')).partitions()
    assert batch_reader(options(name, subscribe=None, subscribePattern="no-such-topic")).partitions() == []


@pytest.mark.parametrize("start", ["group", "none", "read"])
def test_wrong_broker_address_fails_soon(start: str, topic: Topics, options: Options) -> None:
    wrong = options(topic(), bootstrap_servers=f"127.0.0.1:{free_port()}")
    wrong["zookeeper.connection.timeout.ms"] = "1500"
    wrong["membership"] = "group" if start == "group" else "none"
    attempt = (lambda: batch_reader(wrong).partitions()) if start == "read" else lambda: plan(wrong)
    started = time.monotonic()
    with pytest.raises(BrokerUnavailableError, match=r"no broker in bootstrap.servers='127.*check the"):
        attempt()
    assert time.monotonic() - started < 10
