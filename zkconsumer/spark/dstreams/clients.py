"""Each source's connections to brokers and to ZooKeeper. Checkpoints do not contain these connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ClosedError, ConfigurationError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.bootstrap import BootstrapCluster, parse_bootstrap
from zkconsumer.rebalance.futures import complete_future
from zkconsumer.retry import retrying
from zkconsumer.spark.dstreams.arguments import naming
from zkconsumer.spark.dstreams.records import COLUMNS
from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.spark.offset import Ranges
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.splitting import task

#: Maximum seconds to retry while brokers are unreachable. An error during planning terminates the application.
BROKER_TIMEOUT_S = 60.0


class BrokerClient:
    """Connections to brokers, without ZooKeeper.

    Args:
        params: the user's ``kafkaParams``.

    Raises:
        ConfigurationError: see ``broker_config``.
    """

    def __init__(self, params: Mapping[str, str]) -> None:
        config = broker_config(params)
        bootstrap = config.bootstrap_servers
        self._options = SourceOptions.parse(
            {"bootstrap.servers": bootstrap, "membership": "none", "subscribe": "none", "columns": ",".join(COLUMNS)}
        ).for_consumer(config, {})
        self._cluster = BootstrapCluster(parse_bootstrap(bootstrap), Connecting.from_config(config))
        self.logs = LogOffsets.from_config(self._cluster.brokers, config)

    def partitions(self, topics: list[str]) -> list[TopicPartition]:
        """Return all partitions of ``topics``.

        Raises:
            ConfigurationError: a topic does not exist.
        """
        found = self._cluster.partitions(topics)
        if missing := sorted(set(topics) - found.keys()):
            raise ConfigurationError(f"topic {missing[0]!r} does not exist; check the argument 'topics'")
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


class SourceClient(Protocol):
    """A client that a source uses to plan its batches."""

    def close(self) -> None:
        """Close the connections."""


C = TypeVar("C", bound=SourceClient)


class ClientsBySource:
    """Holds each source's client in this process. A client is opened on first use, and is not reopened after ``close``.

    Thread-safe: a source plans batches in one thread, completes them in another, and is closed by a third. No lock is
    held while a client is opened or closed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[str, Future[Any]] = {}
        self._closed: set[str] = set()
        #: Clients that are being closed.
        self._closing: list[Future[Any]] = []
        self._all_closed = threading.Condition(self._lock)

    def get(self, key: str, open_client: Callable[[], C]) -> C:
        """Return the client of a source. The first call opens it; calls from other threads wait until it is open.

        Args:
            key: key of the source; see ``Source``.

        Raises:
            ClosedError: the source was closed.
            ZkConsumerError: the client could not be opened; the next call retries.
        """
        new: Future[C] = Future()
        with self._lock:
            self._check_open(key)
            client = self._clients.setdefault(key, new)
        if client is new:
            complete_future(client, open_client)
        if client is new and client.exception() is not None:
            self._forget(key, client)
        opened: C = client.result()
        with self._lock:
            self._check_open(key)
        return opened

    def close(self, key: str) -> None:
        """Close the client of a source, now or as soon as it is open. Later calls to ``get`` raise an error."""
        with self._lock:
            self._closed.add(key)
            client = self._clients.pop(key, None)
            if client is None:
                return
            self._closing.append(client)
        client.add_done_callback(self._close)

    def close_all(self) -> None:
        """Close all clients, and wait until the clients that other threads are closing are also closed."""
        for key in list(self._clients):
            self.close(key)
        with self._all_closed:
            self._all_closed.wait_for(lambda: not self._closing)

    def _close(self, client: Future[Any]) -> None:
        """Close the client if it was opened. Errors are logged; the callback of a ``Future`` cannot raise them."""
        try:
            if client.exception() is None:
                client.result().close()
        except Exception:
            get_logger("zkconsumer.spark").error("stream_close_failed", exc_info=True)
        with self._all_closed:
            self._closing.remove(client)
            self._all_closed.notify_all()

    def _forget(self, key: str, client: Future[Any]) -> None:
        with self._lock:
            if self._clients.get(key) is client:
                del self._clients[key]

    def _check_open(self, key: str) -> None:
        if key in self._closed:
            raise ClosedError("the stream was closed, because its streaming context stopped")


clients = ClientsBySource()


def broker_config(params: Mapping[str, Any]) -> ConsumerConfig:
    """Return the consumer configuration for ``kafkaParams`` that contain the addresses of brokers.

    Raises:
        ConfigurationError: ``params`` contains neither ``metadata.broker.list`` nor ``bootstrap.servers``, or contains
            an invalid property.
    """
    bootstrap = params.get("metadata.broker.list") or params.get("bootstrap.servers")
    if not bootstrap:
        raise ConfigurationError("kafkaParams: Must specify metadata.broker.list or bootstrap.servers")
    with naming("kafkaParams"):
        return consumer_config({**params, "bootstrap.servers": bootstrap})


def consumer_config(params: Mapping[str, Any]) -> ConsumerConfig:
    """Return the consumer configuration for ``kafkaParams``, which can be written for the old or the new consumer."""
    known = {key: value for key, value in params.items() if key != "metadata.broker.list"}
    if str(known.get("auto.offset.reset", "")).lower() in ("earliest", "latest"):
        known["auto.offset.reset"] = {"earliest": "smallest"}.get(known["auto.offset.reset"].lower(), "largest")
    return ConsumerConfig.from_dict({"zookeeper.connect": "none", "group.id": "kafka-utils", **known})
