"""Tests of metrics under the names of the JVM consumer, and of their export to Prometheus."""

from __future__ import annotations

import re
from typing import Any

from helpers.aliases import Consumers, Topics
from helpers.producing import numbers, produce
from helpers.reading import take
from helpers.waiting import wait_for, wait_until_equal
from prometheus_client import CollectorRegistry, generate_latest

from zkconsumer import ZookeeperConsumerConnector
from zkconsumer.metrics import Kind, declared_metrics
from zkconsumer.prometheus import ConsumerCollector


def by_mbean(connector: ZookeeperConsumerConnector) -> dict[str, dict[str, float]]:
    return {str(name): dict(values) for name, values in connector.metrics.items()}


def test_mbeans_of_original_exist(admin: Any, topic: Topics, consumer: Consumers, group: str) -> None:
    name = topic(2)
    connector = consumer(client_id="c", consumer_id="m", fetch_message_max_bytes=1000, queued_max_message_chunks=1)
    assert connector.metrics == {}
    [stream] = connector.create_message_streams({name: 1})[name]
    for partition in range(2):
        for _ in range(5):
            produce(admin, name, partition, [b"x" * 900])
    consumers, servers, connectors = "kafka.consumer:type=", "kafka.server:type=", "ZookeeperConsumerConnector"
    queue = f"{consumers}{connectors},name=FetchQueueSize,clientId=c,topic={name},threadId={group}_m-0"
    wait_for(lambda: by_mbean(connector)[queue]["Value"] >= 2, what="each partition has a chunk in its queue")

    take(stream, 10)
    connector.commit_offsets()

    found = by_mbean(connector)
    assert found[f"{consumers}{connectors},name=OwnedPartitionsCount,clientId=c,groupId={group}"] == {"Value": 2}
    owned = f"{consumers}{connectors},name=OwnedPartitionsCount,clientId=c,groupId={group},topic={name}"
    assert found[owned] == {"Value": 2}
    assert found[f"{consumers}{connectors},name=ZooKeeperCommitsPerSec,clientId=c"]["Count"] == 2
    assert found[f"{consumers}{connectors},name=RebalanceRateAndTime,clientId=c"]["Count"] >= 1
    assert found[f"{consumers}{connectors},name=UnbalancedSeconds,clientId=c"] == {"Value": 0}
    assert found[f"{consumers}ConsumerFetcherManager,name=MaxLag,clientId=c"] == {"Value": 0}
    assert found[f"{consumers}ConsumerFetcherManager,name=MinFetchRate,clientId=c"]["Value"] >= 0
    for partition in range(2):
        lag = f"{servers}FetcherLagMetrics,name=ConsumerLag,clientId=c,topic={name},partition={partition}"
        assert found[lag] == {"Value": 0}
    for suffix in ("", f",topic={name}"):
        assert found[f"{consumers}ConsumerTopicMetrics,name=MessagesPerSec,clientId=c{suffix}"]["Count"] == 9
        assert found[f"{consumers}ConsumerTopicMetrics,name=BytesPerSec,clientId=c{suffix}"]["Count"] > 9000
    requests = [mbean for mbean in found if mbean.startswith(f"{servers}FetcherStats,name=RequestsPerSec,clientId=c,")]
    assert all(re.search(r",brokerHost=[^,]+,brokerPort=\d+$", mbean) for mbean in requests)
    assert sum(found[mbean]["Count"] for mbean in requests) >= 5 * len(requests)  # one for each broker
    times = found[f"{consumers}FetchRequestAndResponseMetrics,name=FetchRequestRateAndTimeMs,clientId=c"]
    assert 0 < times["Min"] <= times["50thPercentile"] <= times["99thPercentile"] <= times["Max"]
    assert found[f"{consumers}FetchRequestAndResponseMetrics,name=FetchResponseSize,clientId=c"]["Max"] > 900


def test_lag_metric_is_removed_with_partition(topic: Topics, consumer: Consumers) -> None:
    """Source: Kafka 1.1 AbstractFetcherThreadTest.testConsumerLagRemovedWithPartition."""
    name = topic(2)
    one = consumer(consumer_id="one")
    one.create_message_streams({name: 1})

    def lags() -> int:
        return sum("ConsumerLag" in mbean for mbean in by_mbean(one))

    assert lags() == 2
    two = consumer(consumer_id="two")
    two.create_message_streams({name: 1})
    wait_until_equal(lags, 1)


def test_consumers_with_one_client_id_count_separately(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    one, two = consumer(client_id="same"), consumer(client_id="same", group_id="other-" + name)
    [stream] = one.create_message_streams({name: 1})[name]
    two.create_message_streams({})
    take(stream, 10)
    one.commit_offsets()

    commits = "kafka.consumer:type=ZookeeperConsumerConnector,name=ZooKeeperCommitsPerSec,clientId=same"
    assert (by_mbean(one)[commits]["Count"], by_mbean(two)[commits]["Count"]) == (1, 0)


def test_prometheus_exports_metrics(topic: Topics, consumer: Consumers, group: str) -> None:
    name = topic()
    connector = consumer(client_id="c")
    connector.create_message_streams({name: 1})
    registry = CollectorRegistry()
    registry.register(ConsumerCollector(connector))

    text = generate_latest(registry).decode()

    owned = "kafka_consumer_ZookeeperConsumerConnector_OwnedPartitionsCount"
    assert f'{owned}{{clientId="c",groupId="{group}"}} 1.0' in text
    assert f'{owned}{{clientId="c",groupId="{group}",topic="{name}"}} 1.0' in text
    assert re.search(
        r'kafka_consumer_ZookeeperConsumerConnector_RebalanceRateAndTime_Count_total\{clientId="c"\} [1-9]', text
    )
    assert text.count(f"# TYPE {owned} gauge") == 1


def test_prometheus_distinguishes_consumers_with_one_client_id(topic: Topics, consumer: Consumers, group: str) -> None:
    name = topic(2)
    members = [consumer(client_id="c", consumer_id=letter) for letter in "ab"]
    for member in members:
        member.create_message_streams({name: 1})
    registry = CollectorRegistry()
    registry.register(ConsumerCollector(*members))

    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]

    series = [line.rpartition(" ")[0] for line in lines]
    assert len(series) == len(set(series))
    assert any(f'consumerId="{group}_b"' in line for line in series)


def test_metrics_of_consumer_are_declared(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer()
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 10)
    found = {(one.group, one.type, one.name): one for one in declared_metrics()}

    for metric, attributes in connector.metrics.items():
        declaration = found[metric[:3]]
        assert set(dict(metric.tags)) <= set(re.findall(r"\w+", declaration.tags)), metric
        known = set(re.findall(r"``(\w+)``", declaration.kind.value))
        if declaration.kind is Kind.TIMER:
            known |= set(re.findall(r"``(\w+)``", Kind.HISTOGRAM.value))
        assert set(attributes) <= known, metric
