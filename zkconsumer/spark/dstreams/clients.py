"""Connections of the sources in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from zkconsumer.broker.cluster import BootstrapCluster, LogOffsets, parse_bootstrap
from zkconsumer.broker.security import Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.retry import retrying
from zkconsumer.spark.driver.planner import Planner
from zkconsumer.spark.driver.splitting import task
from zkconsumer.spark.dstreams.records import COLUMNS
from zkconsumer.spark.offset import FetchTask, Ranges
from zkconsumer.spark.options.source_options import SourceOptions

#: Seconds that brokers may be out of reach while a batch is made: an error there ends the whole application.
BROKER_TIMEOUT = 60.0


class BrokerClient:
    """Connections to brokers."""

    def __init__(self, params: Mapping[str, str]) -> None:
        named = params.get("metadata.broker.list") or params.get("bootstrap.servers")
        if not named:
            raise ConfigurationError("Must specify metadata.broker.list or bootstrap.servers")
        self.options = SourceOptions.parse(
            {"bootstrap.servers": named, "membership": "none", "subscribe": "none", "columns": ",".join(COLUMNS)}
        ).for_consumer(consumer_config({**params, "bootstrap.servers": named}), {})
        config = self.options.consumer
        assert config.client_id is not None
        timeout, security = config.socket_timeout_ms / 1000, Security.of(config)
        self.cluster = BootstrapCluster(parse_bootstrap(named), config.client_id, timeout=timeout, security=security)
        self.logs = LogOffsets.of(self.cluster.brokers, config)

    def partitions(self, topics: list[str]) -> list[TopicPartition]:
        found = self.cluster.partitions(topics)
        if missing := sorted(set(topics) - found.keys()):
            raise ConfigurationError(f"topic {missing[0]!r} does not exist")
        return [TopicPartition(topic, number) for topic in sorted(found) for number in found[topic]]

    def tasks(self, ranges: Ranges) -> list[FetchTask]:
        leaders, brokers = retrying(BROKER_TIMEOUT)(lambda: self.logs.find_leaders(ranges)), self.cluster.brokers()
        return [task(self.options, {partition: span}, leaders, brokers) for partition, span in ranges.items()]

    def close(self) -> None:
        self.logs.close()
        self.cluster.close()


class Clients:
    """The connections of this process, by the source that they are for; made at need, also after a recovery.

    Those of one source are made by the one thread that makes batches.
    """

    def __init__(self) -> None:
        self._open: dict[str, BrokerClient | Planner] = {}

    def direct(self, key: str, params: Mapping[str, str]) -> BrokerClient:
        found = self._open.get(key)
        if found is None:
            found = self._open[key] = BrokerClient(params)
        assert isinstance(found, BrokerClient)
        return found

    def group(self, key: str, options: Callable[[], SourceOptions], seen: Mapping[str, Any]) -> Planner:
        found = self._open.get(key)
        if found is None:
            found = Planner(options(), seen, application=os.getpid())
            found.start()
            self._open[key] = found
        assert isinstance(found, Planner)
        return found

    def close(self, key: str) -> None:
        found = self._open.pop(key, None)
        if found is not None:
            found.close()


clients = Clients()


def consumer_config(params: Mapping[str, Any]) -> ConsumerConfig:
    """Return the settings among ``kafkaParams``, which may have others too."""
    known = {key: value for key, value in params.items() if key != "metadata.broker.list"}
    if str(known.get("auto.offset.reset", "")).lower() in ("earliest", "latest"):
        known["auto.offset.reset"] = {"earliest": "smallest"}.get(known["auto.offset.reset"].lower(), "largest")
    return ConsumerConfig.from_dict({"zookeeper.connect": "none", "group.id": "kafka-utils", **known})
