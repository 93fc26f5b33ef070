"""Connections to brokers and groups, by source. Checkpoints do not contain them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from zkconsumer.broker.cluster import BootstrapCluster, parse_bootstrap
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.broker.security import Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.retry import retrying
from zkconsumer.spark.driver.planner import Planner
from zkconsumer.spark.driver.splitting import task
from zkconsumer.spark.dstreams.records import COLUMNS
from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.spark.offset import Ranges
from zkconsumer.spark.options.source_options import SourceOptions

#: Seconds to retry while brokers are unreachable. An error while a batch is planned terminates the application.
BROKER_TIMEOUT_S = 60.0


class BrokerClient:
    """Connections to brokers, without ZooKeeper.

    Args:
        params: the user's ``kafkaParams``.

    Raises:
        ConfigurationError: ``params`` contains neither ``metadata.broker.list`` nor ``bootstrap.servers``.
    """

    def __init__(self, params: Mapping[str, str]) -> None:
        bootstrap = params.get("metadata.broker.list") or params.get("bootstrap.servers")
        if not bootstrap:
            raise ConfigurationError("Must specify metadata.broker.list or bootstrap.servers")
        self._options = SourceOptions.parse(
            {"bootstrap.servers": bootstrap, "membership": "none", "subscribe": "none", "columns": ",".join(COLUMNS)}
        ).for_consumer(consumer_config({**params, "bootstrap.servers": bootstrap}), {})
        config = self._options.consumer
        assert config.client_id is not None
        timeout, security = config.socket_timeout_ms / 1000, Security.of(config)
        endpoints = parse_bootstrap(bootstrap)
        self._cluster = BootstrapCluster(endpoints, config.client_id, timeout=timeout, security=security)
        self.logs = LogOffsets.of(self._cluster.brokers, config)

    def partitions(self, topics: list[str]) -> list[TopicPartition]:
        """Return all partitions of topics.

        Raises:
            ConfigurationError: a topic does not exist.
        """
        found = self._cluster.partitions(topics)
        if missing := sorted(set(topics) - found.keys()):
            raise ConfigurationError(f"topic {missing[0]!r} does not exist; create it, or correct the argument topics")
        return [TopicPartition(topic, number) for topic in sorted(found) for number in found[topic]]

    def tasks(self, ranges: Ranges) -> list[FetchTask]:
        """Return one task for each partition."""
        leaders = retrying(BROKER_TIMEOUT_S)(lambda: self.logs.find_leaders(ranges))
        brokers = self._cluster.brokers()
        return [task(self._options, {partition: span}, leaders, brokers) for partition, span in ranges.items()]

    def close(self) -> None:
        """Close the connections."""
        self.logs.close()
        self._cluster.close()


class ClientsBySource:
    """The clients of the sources in this process. They are opened at their first use.

    The clients of a source are opened by the thread that plans its batches.
    """

    def __init__(self) -> None:
        self._clients: dict[str, BrokerClient | Planner] = {}

    def broker_client(self, key: str, params: Mapping[str, str]) -> BrokerClient:
        """Return the client of a direct source."""
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = BrokerClient(params)
        assert isinstance(client, BrokerClient)
        return client

    def planner(self, key: str, options: Callable[[], SourceOptions], offset: Mapping[str, Any]) -> Planner:
        """Return the planner of a group source.

        Args:
            offset: end of the last planned batch, as in ``zkconsumer.spark.offset``.
        """
        planner = self._clients.get(key)
        if planner is None:
            planner = Planner(options(), offset, application=os.getpid())
            planner.start()
            self._clients[key] = planner
        assert isinstance(planner, Planner)
        return planner

    def close(self, key: str) -> None:
        """Close the client of a source, if it is open."""
        client = self._clients.pop(key, None)
        if client is not None:
            client.close()


clients = ClientsBySource()


def consumer_config(params: Mapping[str, Any]) -> ConsumerConfig:
    """Return the configuration of a consumer from ``kafkaParams`` of the old or the new Kafka consumer."""
    known = {key: value for key, value in params.items() if key != "metadata.broker.list"}
    if str(known.get("auto.offset.reset", "")).lower() in ("earliest", "latest"):
        known["auto.offset.reset"] = {"earliest": "smallest"}.get(known["auto.offset.reset"].lower(), "largest")
    return ConsumerConfig.from_dict({"zookeeper.connect": "none", "group.id": "kafka-utils", **known})
