"""What a DStream of ``kafka_utils`` reads in each batch, and what it remembers of that.

A batch of Spark Streaming is a time and an RDD. A source decides once, at the first call for a time, which ranges of
offsets that RDD has, and keeps them in a ledger. The ledger travels with the function that Spark writes into its
checkpoint, so that a batch which is run again after a crash has the same ranges; connections do not travel.

Source: Spark 2.4 DirectKafkaInputDStream, KafkaReceiver, ReliableKafkaReceiver for what users expect.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark import SparkContext
from pyspark.streaming import StreamingContext, StreamingListener

from zkconsumer.broker import protocol
from zkconsumer.broker.cluster import BootstrapCluster, LogOffsets, parse_bootstrap
from zkconsumer.broker.security import Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.retry import retrying
from zkconsumer.spark.driver.admission import fair_shares
from zkconsumer.spark.driver.planner import Planner
from zkconsumer.spark.driver.splitting import task
from zkconsumer.spark.driver.splitting import tasks as tasks_of
from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.spark.executor.reader import read
from zkconsumer.spark.offset import INITIAL, Ranges, from_offset, total
from zkconsumer.spark.options.source_options import SourceOptions

#: Batches that a ledger remembers although they are done: windows may ask for them again after a recovery.
_REMEMBERED = 1000

#: Values of the records, as a batch of them has them.
COLUMNS = ("key", "value", "topic", "partition", "offset")

#: Seconds that brokers may be out of reach while a batch is made: an error there ends the whole application.
_PATIENCE = 60.0

Record = tuple[bytes | None, bytes | None, str, int, int]


def fetch(tasks: Iterator[FetchTask]) -> Iterator[Record]:  # in the executors
    """Yield the records of tasks."""
    for one in tasks:
        for batch in read(one):
            yield from zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)


class Ledger:
    """What the batches so far have, by their times in milliseconds, and which of them are done.

    It travels in a checkpoint. After a recovery Spark makes the batches again that were not done, before any new one.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[int, Any] = OrderedDict()
        self._done: set[int] = set()
        self._settled: set[int] = set()  # done, as all before them
        self._asked: set[int] | None = None  # since the recovery, until the first new batch
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {"entries": self._entries.copy(), "done": set(self._done), "settled": set(self._settled)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._entries, self._done, self._settled = state["entries"], state["done"], state["settled"]
        self._asked = set()

    def __contains__(self, milliseconds: int) -> bool:
        with self._lock:
            if self._asked is not None:
                self._asked.add(milliseconds)
            return milliseconds in self._entries

    def get(self, milliseconds: int) -> Any:
        """Return what was added for a time, or None."""
        with self._lock:
            return self._entries.get(milliseconds)

    def add(self, milliseconds: int, entry: Any) -> None:
        """Remember one more; those that are settled are forgotten in time."""
        with self._lock:
            if self._asked is not None:
                self._done |= self._entries.keys() - self._asked
                self._asked = None
            self._entries[milliseconds] = entry
            while len(self._entries) > _REMEMBERED and (oldest := next(iter(self._entries))) in self._settled:
                del self._entries[oldest]
                self._done.discard(oldest)
                self._settled.discard(oldest)

    def complete(self, milliseconds: int) -> list[Any]:
        """Take note that a batch is done; returns what has been settled by that, oldest first.

        What comes after a batch that is not done, and perhaps never will be, is not settled: were the offsets of a
        later one stored, that batch would be left out.
        """
        settled = []
        with self._lock:
            self._done.add(milliseconds)
            for time, entry in self._entries.items():
                if time not in self._done:
                    break
                if time not in self._settled:
                    self._settled.add(time)
                    settled.append(entry)
        return settled


class Source:
    """Decides what batches have; used by the thread in which Spark makes batches, and told by another what is done.

    Attributes:
        key: names its connections; in a recovered context it is another one, which has its own.
        seconds: of a batch.
    """

    def __init__(self, seconds: float) -> None:
        self.key, self.seconds = uuid.uuid4().hex, seconds
        self._ledger = Ledger()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, key=uuid.uuid4().hex)

    def ranges_at(self, milliseconds: int) -> Ranges:
        """Return the ranges of the batch of that time, always the same."""
        if milliseconds not in self._ledger:
            self._ledger.add(milliseconds, self._plan())
        return self.planned_at(milliseconds)

    def planned_at(self, milliseconds: int) -> Ranges:
        """Return the ranges of a batch that was made before; nothing where it is not known."""
        return dict(self._ledger.get(milliseconds) or {})

    def done(self, milliseconds: int) -> None:
        """Take note that a batch is done."""
        self._ledger.complete(milliseconds)

    def tasks(self, ranges: Ranges) -> list[FetchTask]:
        """Return what the tasks of such a batch are told."""
        raise NotImplementedError

    def _plan(self) -> Any:
        """Return what the ledger shall have of the next batch."""
        raise NotImplementedError


class DirectSource(Source):
    """All partitions of some topics, as they were at the start; without a group and without ZooKeeper.

    Args:
        seconds: of a batch.
        positions: where to begin; None for where ``auto.offset.reset`` says.
    """

    def __init__(
        self,
        seconds: float,
        params: Mapping[str, str],
        topics: list[str],
        positions: Mapping[TopicPartition, int] | None,
    ) -> None:
        super().__init__(seconds)
        self._params = dict(params)
        client = _clients.direct(self.key, params)
        if positions is None:
            reset = str(params.get("auto.offset.reset", "largest")).lower()
            where = protocol.EARLIEST if reset in ("smallest", "earliest") else protocol.LATEST
            positions = client.logs.offsets(client.partitions(topics), where)
        self._positions = dict(positions)

    def _plan(self) -> Ranges:
        client = _clients.direct(self.key, self._params)
        ends = retrying(_PATIENCE)(lambda: client.logs.offsets(self._positions, protocol.LATEST))
        waiting = {p: max(0, ends[p] - position) for p, position in self._positions.items()}
        shares = _Rates.of(self).direct(waiting)
        ranges = {p: (position, position + shares.get(p, 0)) for p, position in self._positions.items()}
        self._positions = {p: until for p, (_, until) in ranges.items()}
        return ranges

    def tasks(self, ranges: Ranges) -> list[FetchTask]:
        """See ``Source``; one for each partition, also where it has nothing."""
        return _clients.direct(self.key, self._params).tasks(ranges)


class GroupSource(Source):
    """The share of a member of a ZooKeeper-coordinated group.

    Args:
        seconds: of a batch.
    """

    def __init__(self, seconds: float, config: ConsumerConfig, topics: Mapping[str, int]) -> None:
        super().__init__(seconds)
        self._config = config
        self._topics = dict(topics)
        self._last: dict[str, Any] = INITIAL

    def _plan(self) -> dict[str, Any] | None:
        end = self._planner().plan(self._last, _Rates.of(self).group())
        new = None if end is self._last else end
        self._last = end
        return new

    def planned_at(self, milliseconds: int) -> Ranges:
        """See ``Source``; the ledger has Spark's offsets."""
        end = self._ledger.get(milliseconds)
        return from_offset(end) if end is not None else {}

    def tasks(self, ranges: Ranges) -> list[FetchTask]:
        """See ``Source``."""
        planner = self._planner()
        return list(tasks_of(self._options(), ranges, planner.find_leaders(ranges), planner.brokers(), 2))

    def done(self, milliseconds: int) -> None:
        """Store the group's offsets of a batch whose jobs have succeeded, once all before it are done, too."""
        for end in self._ledger.complete(milliseconds):
            if end is not None:
                self._planner().finish_batch(end)

    def _options(self) -> SourceOptions:
        options = SourceOptions.parse(
            {"zookeeper.connect": "none", "group.id": "none", "subscribe": ",".join(self._topics)}
        )
        return options.for_consumer(self._config, self._topics)

    def _planner(self) -> Planner:
        return _clients.group(self.key, self._options, self._last)


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
        leaders, brokers = retrying(_PATIENCE)(lambda: self.logs.find_leaders(ranges)), self.cluster.brokers()
        return [task(self.options, {partition: span}, leaders, brokers) for partition, span in ranges.items()]

    def close(self) -> None:
        self.logs.close()
        self.cluster.close()


class _Clients:
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


_clients = _Clients()


def consumer_config(params: Mapping[str, Any]) -> ConsumerConfig:
    """Return the settings among ``kafkaParams``, which may have others too."""
    known = {key: value for key, value in params.items() if key != "metadata.broker.list"}
    if str(known.get("auto.offset.reset", "")).lower() in ("earliest", "latest"):
        known["auto.offset.reset"] = {"earliest": "smallest"}.get(known["auto.offset.reset"].lower(), "largest")
    return ConsumerConfig.from_dict({"zookeeper.connect": "none", "group.id": "kafka-utils", **known})


class _Rates:
    """The limits of a source: those of the configuration, and what back-pressure makes of them.

    Source: Spark 2.4 RateController, DirectKafkaInputDStream.maxMessagesPerPartition.
    """

    _by_key: dict[str, _Rates] = {}

    def __init__(self, sc: SparkContext, seconds: float, *, direct: bool) -> None:
        conf = sc.getConf()
        self._seconds = seconds
        name = "spark.streaming.kafka.maxRatePerPartition" if direct else "spark.streaming.receiver.maxRate"
        self._most = float(conf.get(name, "0") or 0)
        self._rate = float(conf.get("spark.streaming.backpressure.initialRate", "0") or 0)
        self._estimator: Any = None
        if conf.get("spark.streaming.backpressure.enabled", "false").lower() == "true":
            jvm = sc._jvm
            assert jvm is not None
            jconf = sc._jsc.sc().conf()
            duration = jvm.org.apache.spark.streaming.Duration(int(self._seconds * 1000))
            self._estimator = jvm.org.apache.spark.streaming.scheduler.rate.RateEstimator.create(jconf, duration)
        else:
            self._rate = 0.0

    @classmethod
    def of(cls, source: Source) -> _Rates:
        """Return those of a source; made at its first batch in this process."""
        if source.key not in cls._by_key:
            sc = SparkContext._active_spark_context
            assert sc is not None
            cls._by_key[source.key] = cls(sc, source.seconds, direct=isinstance(source, DirectSource))
        return cls._by_key[source.key]

    @classmethod
    def forget(cls, source: Source) -> None:
        cls._by_key.pop(source.key, None)

    def group(self) -> int | None:
        limits = [rate for rate in (self._most, self._rate) if rate > 0]
        return max(1, int(min(limits) * self._seconds)) if limits else None

    def direct(self, waiting: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        shares = dict(waiting)
        if self._rate > 0:
            shares = fair_shares(waiting, max(1, int(self._rate * self._seconds)))
        if self._most > 0:
            most = max(1, int(self._most * self._seconds))
            shares = {partition: min(share, most) for partition, share in shares.items()}
        return shares

    def completed(self, milliseconds: int, records: int, processing: int, scheduling: int) -> None:
        if self._estimator is None:
            return
        found = self._estimator.compute(milliseconds + processing, records, processing, scheduling)
        if found.isDefined():
            self._rate = float(found.get())


class Follower(StreamingListener):
    """Learns when batches are done; ends with the streaming context.

    Spark tells nobody in Python that a context was stopped, so its state is looked at.
    """

    class Java:
        """What py4j wants to know."""

        implements = ["org.apache.spark.streaming.api.java.PythonStreamingListener"]

    def __init__(self, ssc: StreamingContext, source: Source) -> None:
        super().__init__()
        self._ssc, self._source = ssc, source
        self._log = get_logger("zkconsumer.spark")

    def start(self) -> None:
        """Be told of batches, until the context is stopped."""
        self._ssc.addStreamingListener(self)
        threading.Thread(target=self._watch, name="zkconsumer-dstream-watch", daemon=True).start()

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        """Acknowledge a batch, and let back-pressure know how long it took."""
        info = batchCompleted.batchInfo()
        at = int(info.batchTime().milliseconds())
        if any(found.failureReason() is not None for found in info.outputOperationInfos().values()):
            self._log.error("batch_failed", time=at, remedy="no offsets are stored from here on; start again")
            return
        try:
            self._source.done(at)
            records = total(self._source.planned_at(at))
            processing, scheduling = int(info.processingDelay()), int(info.schedulingDelay())
            if records and processing >= 0 and scheduling >= 0:  # -1 where it is not known
                _Rates.of(self._source).completed(at, records, processing, scheduling)
        except Exception as error:  # Spark would not tell of it; the next batch stores more
            self._log.warning("batch_not_acknowledged", time=at, error=repr(error))

    def _watch(self) -> None:
        while not self._is_stopped():
            time.sleep(0.5)
        _clients.close(self._source.key)
        _Rates.forget(self._source)
        _followed.discard(self._source.key)

    def _is_stopped(self) -> bool:
        try:
            return str(self._ssc._jssc.getState().toString()) == "STOPPED"
        except Exception:  # its JVM has ended
            return True


_followed: set[str] = set()


def follow(source: Source) -> None:
    """Begin to follow the batches of a source, once in each process; called at each of its batches.

    Those that a context makes while it recovers come before it is known; what they have is acknowledged with the next.
    """
    ssc = StreamingContext._activeContext
    if ssc is not None and source.key not in _followed:
        _followed.add(source.key)
        Follower(ssc, source).start()
