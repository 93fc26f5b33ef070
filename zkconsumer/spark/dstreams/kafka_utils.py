"""``KafkaUtils`` of Spark 1 and 2, for jobs whose ``pyspark.streaming.kafka`` is gone since Spark 3.

The names, arguments and results are those of pyspark 2.4.8. ``createStream`` is a true member of its group, with as
many thread ids for each topic as were asked for, and stores offsets when a batch is done, so that a killed driver
loses nothing (the original's receiver did, without its write-ahead log). Executors fetch from the brokers themselves.

Source: Spark 2.4 pyspark.streaming.kafka; org.apache.spark.streaming.kafka.KafkaUtils.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from pyspark import SparkContext
from pyspark.core.rdd import RDD
from pyspark.storagelevel import StorageLevel
from pyspark.streaming import DStream, StreamingContext
from pyspark.streaming.dstream import TransformedDStream
from pyspark.streaming.util import TransformFunction

from zkconsumer.broker import protocol
from zkconsumer.errors import ConfigurationError
from zkconsumer.message import Endpoint
from zkconsumer.message import TopicPartition as _TopicPartition
from zkconsumer.spark.dstreams.sources import (
    BrokerClient,
    DirectSource,
    GroupSource,
    Source,
    consumer_config,
    fetch,
    follow,
)
from zkconsumer.spark.executor.fetch_task import FetchTask

__all__ = ["Broker", "KafkaMessageAndMetadata", "KafkaUtils", "OffsetRange", "TopicAndPartition", "utf8_decoder"]

Decoder = Callable[[bytes | None], Any]


def utf8_decoder(s: bytes | None) -> str | None:
    """Decode the unicode as UTF-8."""
    return None if s is None else s.decode("utf-8")


class OffsetRange:
    """A range of offsets of one partition; ``untilOffset`` is not part of it."""

    def __init__(self, topic: str, partition: int, fromOffset: int, untilOffset: int) -> None:
        self.topic = topic
        self.partition = partition
        self.fromOffset = fromOffset
        self.untilOffset = untilOffset

    def _key(self) -> tuple[str, int, int, int]:
        return self.topic, self.partition, self.fromOffset, self.untilOffset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetRange) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        span = f"[{self.fromOffset} -> {self.untilOffset}]"
        return f"OffsetRange(topic: {self.topic}, partition: {self.partition}, range: {span}"


class TopicAndPartition:
    """One partition of a topic."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TopicAndPartition) and self._topic == other._topic and self._partition == other._partition
        )

    def __hash__(self) -> int:
        return hash((self._topic, self._partition))


class Broker:
    """Where a broker listens."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port


class KafkaMessageAndMetadata:
    """A record, as a ``messageHandler`` gets it; key and message are decoded at each access."""

    def __init__(self, topic: str, partition: int, offset: int, key: bytes | None, message: bytes | None) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self._rawKey = key
        self._rawMessage = message
        self._keyDecoder: Decoder = utf8_decoder
        self._valueDecoder: Decoder = utf8_decoder

    def __str__(self) -> str:
        place = f"topic: {self.topic}, partition: {self.partition}, offset: {self.offset}"
        return f"KafkaMessageAndMetadata({place}, key and message...)"

    def __repr__(self) -> str:
        return self.__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        return KafkaMessageAndMetadata, (self.topic, self.partition, self.offset, self._rawKey, self._rawMessage)

    def _set_key_decoder(self, decoder: Decoder) -> None:
        self._keyDecoder = decoder

    def _set_value_decoder(self, decoder: Decoder) -> None:
        self._valueDecoder = decoder

    @property
    def key(self) -> Any:
        """The key, decoded."""
        return self._keyDecoder(self._rawKey)

    @property
    def message(self) -> Any:
        """The value, decoded."""
        return self._valueDecoder(self._rawMessage)


class KafkaRDD(RDD[Any]):
    """An RDD that knows its offsets."""

    def offsetRanges(self) -> list[OffsetRange]:
        """Return the ranges that it was made from."""
        return list(_ranges_of.get(int(self._jrdd.id()), []))


class KafkaDStream(TransformedDStream[Any]):
    """A DStream of KafkaRDDs. A class of its own, since Spark folds plain ones into their children, each for itself."""

    def foreachRDD(self, func: Callable[..., None]) -> None:
        """Apply a function to each KafkaRDD; it takes the RDD, or the time and the RDD."""
        jfunc = TransformFunction(self._sc, _of_two(func), self._jrdd_deserializer).rdd_wrapper(_kafka_rdd)
        assert self._ssc._jvm is not None
        self._ssc._jvm.PythonDStream.callForeachRDD(self._jdstream, jfunc)

    def transform(self, func: Callable[..., RDD[Any]]) -> TransformedDStream[Any]:
        """Return a DStream of what a function makes of each KafkaRDD."""
        return KafkaTransformedDStream(self, _of_two(func))


class KafkaTransformedDStream(TransformedDStream[Any]):
    """What ``KafkaDStream.transform`` returns: the function gets KafkaRDDs."""

    _jdstream_val: Any

    @property
    def _jdstream(self) -> Any:
        if self._jdstream_val is None:
            jfunc = TransformFunction(self._sc, self.func, self.prev._jrdd_deserializer).rdd_wrapper(_kafka_rdd)
            assert self._sc._jvm is not None
            dstream = self._sc._jvm.PythonTransformedDStream(self.prev._jdstream.dstream(), jfunc)
            self._jdstream_val = dstream.asJavaDStream()
        return self._jdstream_val


class KafkaUtils:
    """Makes DStreams and RDDs from topics."""

    @staticmethod
    def createStream(
        ssc: StreamingContext,
        zkQuorum: str,
        groupId: str,
        topics: dict[str, int],
        kafkaParams: dict[str, str] | None = None,
        storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_2,
        keyDecoder: Decoder = utf8_decoder,
        valueDecoder: Decoder = utf8_decoder,
    ) -> DStream[Any]:
        """Return a stream of ``(key, message)`` of a member of a group.

        Args:
            zkQuorum: ``zookeeper.connect``.
            topics: topic to number of threads.
            storageLevel: has no effect: nothing is stored, since the brokers can be asked again.
        """
        del storageLevel
        if not isinstance(topics, dict):
            raise TypeError("topics should be dict")
        params: dict[str, str] = {} if kafkaParams is None else kafkaParams
        if not isinstance(params, dict):
            raise TypeError("kafkaParams should be dict")
        params.update(
            {
                "zookeeper.connect": zkQuorum,
                "group.id": groupId,
                "zookeeper.connection.timeout.ms": "10000",
            }
        )
        return _stream(
            ssc, GroupSource(_seconds(ssc), consumer_config(params), topics), _maker(keyDecoder, valueDecoder, None)
        )

    @staticmethod
    def createDirectStream(
        ssc: StreamingContext,
        topics: list[str],
        kafkaParams: dict[str, str],
        fromOffsets: dict[TopicAndPartition, int] | None = None,
        keyDecoder: Decoder = utf8_decoder,
        valueDecoder: Decoder = utf8_decoder,
        messageHandler: Callable[[KafkaMessageAndMetadata], Any] | None = None,
    ) -> KafkaDStream:
        """Return a stream of ``(key, message)``, or of what the handler returns, straight from the brokers."""
        if not isinstance(topics, list):
            raise TypeError("topics should be list")
        if not isinstance(kafkaParams, dict):
            raise TypeError("kafkaParams should be dict")
        positions = None
        if fromOffsets:
            named = {partition._topic for partition in fromOffsets}
            if named != set(topics):
                raise ConfigurationError(
                    f"The specified topics: {' '.join(sorted(topics))} do not equal to the topic from offsets: "
                    f"{' '.join(sorted(named))}"
                )
            positions = {_TopicPartition(p._topic, p._partition): int(offset) for p, offset in fromOffsets.items()}
        make = _maker(keyDecoder, valueDecoder, messageHandler)
        return _stream(ssc, DirectSource(_seconds(ssc), kafkaParams, topics, positions), make)

    @staticmethod
    def createRDD(
        sc: SparkContext,
        kafkaParams: dict[str, str],
        offsetRanges: list[OffsetRange],
        leaders: dict[TopicAndPartition, Broker] | None = None,
        keyDecoder: Decoder = utf8_decoder,
        valueDecoder: Decoder = utf8_decoder,
        messageHandler: Callable[[KafkaMessageAndMetadata], Any] | None = None,
    ) -> KafkaRDD:
        """Return an RDD of ``(key, message)``, or of what the handler returns, with one partition for each range."""
        if not isinstance(kafkaParams, dict):
            raise TypeError("kafkaParams should be dict")
        if not isinstance(offsetRanges, list):
            raise TypeError("offsetRanges should be list")
        client = BrokerClient(kafkaParams)
        try:
            wanted = [(_TopicPartition(r.topic, r.partition), r.fromOffset, r.untilOffset) for r in offsetRanges]
            firsts = client.logs.offsets({p for p, _, _ in wanted}, protocol.EARLIEST)
            ends = client.logs.offsets({p for p, _, _ in wanted}, protocol.LATEST)
            for partition, start, until in wanted:
                if start > until:
                    raise ConfigurationError(
                        f"Beginning offset {start} is after the ending offset {until} for topic {partition.topic} "
                        f"partition {partition.partition}"
                    )
                if start < firsts[partition] or until > ends[partition]:
                    raise ConfigurationError(
                        f"Offsets not available on leader: {partition.topic} {partition.partition} has offsets from "
                        f"{firsts[partition]} to {ends[partition]}, and {start} to {until} are asked for"
                    )
            tasks = [client.tasks({partition: (start, until)})[0] for partition, start, until in wanted]
        finally:
            client.close()
        given = {
            _TopicPartition(p._topic, p._partition): (-1, Endpoint(b._host, int(b._port)))
            for p, b in (leaders or {}).items()
        }
        for task in tasks:
            task.leaders.update({p: leader for p, leader in given.items() if p in task.ranges})
        make = _maker(keyDecoder, valueDecoder, messageHandler)
        return _rdd(sc, tasks, list(offsetRanges), make)


#: The ranges of the KafkaRDDs of this process, by the RDD's id.
_ranges_of: OrderedDict[int, list[OffsetRange]] = OrderedDict()
_MOST_RDDS = 10_000

Make = Callable[[Iterator[FetchTask]], Iterator[Any]]


def _seconds(ssc: StreamingContext) -> float:
    """Return how long a batch is."""
    return float(ssc._jssc.ssc().graph().batchDuration().milliseconds()) / 1000


def _stream(ssc: StreamingContext, source: Source, make: Make) -> KafkaDStream:
    def batch(time: datetime, _tick: RDD[Any]) -> RDD[Any]:
        sc = SparkContext._active_spark_context
        assert sc is not None
        follow(source)
        ranges = source.ranges_at(round(time.timestamp() * 1000))
        spans = [OffsetRange(p.topic, p.partition, *span) for p, span in sorted(ranges.items())]
        return _rdd(sc, source.tasks(ranges), spans, make)

    # Of what ticks once a batch only a stream of files can be recovered from a checkpoint.
    folder = tempfile.mkdtemp(prefix="zkconsumer-tick-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return KafkaDStream(ssc.textFileStream(folder), batch)


def _rdd(sc: SparkContext, tasks: list[FetchTask], ranges: list[OffsetRange], make: Make) -> KafkaRDD:
    made = sc.parallelize(tasks, max(1, len(tasks))).mapPartitions(make)
    found = KafkaRDD(made._jrdd, sc, made._jrdd_deserializer)
    _ranges_of[int(found._jrdd.id())] = ranges
    while len(_ranges_of) > _MOST_RDDS:
        _ranges_of.popitem(last=False)
    return found


def _kafka_rdd(jrdd: Any, sc: SparkContext, deserializer: Any) -> KafkaRDD:
    return KafkaRDD(jrdd, sc, deserializer)


def _maker(
    key_decoder: Decoder, value_decoder: Decoder, handler: Callable[[KafkaMessageAndMetadata], Any] | None
) -> Make:
    """Return what makes elements of records: what the handler returns, or pairs of key and message."""

    def pairs(tasks: Iterator[FetchTask]) -> Iterator[Any]:
        for key, value, *_ in fetch(tasks):
            yield key_decoder(key), value_decoder(value)

    def handled(tasks: Iterator[FetchTask]) -> Iterator[Any]:
        assert handler is not None
        for key, value, topic, partition, offset in fetch(tasks):
            message = KafkaMessageAndMetadata(topic, partition, offset, key, value)
            message._set_key_decoder(key_decoder)
            message._set_value_decoder(value_decoder)
            yield handler(message)

    return pairs if handler is None else handled


def _of_two(func: Callable[..., Any]) -> Callable[[datetime, RDD[Any]], Any]:
    """Return the function with the two arguments that Spark gives it."""
    code: Any = getattr(func, "__code__", None)
    if code is None or code.co_argcount not in (1, 2):
        raise TypeError("func should take one or two arguments")
    if code.co_argcount == 2:
        return func
    return lambda _time, rdd: func(rdd)
