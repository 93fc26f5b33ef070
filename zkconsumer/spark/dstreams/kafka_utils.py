"""``KafkaUtils`` of Spark 1 and 2, for applications that use ``pyspark.streaming.kafka``, which Spark 3 removed.

Names, arguments and results are the same as in pyspark 2.4.8. A stream from ``createStream`` is a consumer group member
with the requested number of thread ids per topic. It commits offsets after a batch is completed, so no records are lost
if the driver is killed, whereas Spark 2's receiver lost records unless its write-ahead log was enabled. Executors fetch
from the brokers.

Source: Spark 2.4 pyspark.streaming.kafka; org.apache.spark.streaming.kafka.KafkaUtils.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
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

from zkconsumer.argument_checks import check_function, check_integer, check_type
from zkconsumer.errors import ConfigurationError
from zkconsumer.log_ends import EARLIEST, LATEST
from zkconsumer.message import Endpoint
from zkconsumer.message import TopicPartition as _TopicPartition
from zkconsumer.spark.dstreams.arguments import (
    check_collection,
    check_functions,
    check_property,
    check_streams,
    check_topics,
    naming,
    with_two_arguments,
)
from zkconsumer.spark.dstreams.batches import record_batches
from zkconsumer.spark.dstreams.clients import BrokerClient, broker_config, consumer_config
from zkconsumer.spark.dstreams.follower import follow
from zkconsumer.spark.dstreams.records import fetch
from zkconsumer.spark.dstreams.sources import DirectSource, GroupSource, Source
from zkconsumer.spark.dstreams.values import (
    Broker,
    KafkaMessageAndMetadata,
    NullableDecoder,
    OffsetRange,
    TopicAndPartition,
    utf8_decoder,
)
from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.zookeeper.registry import OFFSET_MAX

__all__ = ["Broker", "KafkaMessageAndMetadata", "KafkaUtils", "OffsetRange", "TopicAndPartition", "utf8_decoder"]


class KafkaRDD(RDD[Any]):
    """An RDD of records that provides their offset ranges."""

    def offsetRanges(self) -> list[OffsetRange]:
        """Return the offset ranges, one for each partition of the RDD."""
        return list(_ranges_of.get(int(self._jrdd.id()), []))


class KafkaDStream(TransformedDStream[Any]):
    """A DStream of KafkaRDDs.

    PySpark merges a plain ``TransformedDStream`` into each of its children. This class prevents that.
    """

    _source: Source | None = None

    @property
    def _jdstream(self) -> Any:
        """The JVM's stream, which is created when another stream or an output operation uses this stream."""
        if self._source is not None:
            self._source.mark_used()
        return super()._jdstream

    def foreachRDD(self, func: Callable[..., None]) -> None:
        """Call ``func(time, rdd)`` for each KafkaRDD, or ``func(rdd)`` if it takes one argument.

        Raises:
            ConfigurationError: ``func`` cannot be called with one or two arguments.
        """
        jfunc = TransformFunction(self._sc, with_two_arguments(func), self._jrdd_deserializer).rdd_wrapper(_kafka_rdd)
        assert self._ssc._jvm is not None
        self._ssc._jvm.PythonDStream.callForeachRDD(self._jdstream, jfunc)

    def transform(self, func: Callable[..., RDD[Any]]) -> TransformedDStream[Any]:
        """Return a DStream that applies ``func(time, rdd)`` or ``func(rdd)`` to each KafkaRDD; see ``foreachRDD``."""
        return KafkaTransformedDStream(self, with_two_arguments(func))


class KafkaTransformedDStream(TransformedDStream[Any]):
    """The result of ``KafkaDStream.transform``, whose function is called with KafkaRDDs."""

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
    """Creates DStreams and RDDs from topics."""

    @staticmethod
    def createStream(
        ssc: StreamingContext,
        zkQuorum: str,
        groupId: str,
        topics: dict[str, int],
        kafkaParams: dict[str, str] | None = None,
        storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_2,
        keyDecoder: NullableDecoder = utf8_decoder,
        valueDecoder: NullableDecoder = utf8_decoder,
    ) -> DStream[Any]:
        """Return a stream of ``(key, message)`` pairs that is a member of a consumer group.

        Args:
            zkQuorum: ``zookeeper.connect``.
            groupId: ``group.id``.
            topics: number of threads per topic.
            kafkaParams: additional consumer properties. As in Spark 2.4, ``zookeeper.connect``, ``group.id`` and
                ``zookeeper.connection.timeout.ms`` are added to this dict.
            storageLevel: ignored. Records are not stored, because they can be fetched again.
            keyDecoder: function that decodes keys.
            valueDecoder: function that decodes messages.

        Raises:
            ConfigurationError: an argument is invalid.
        """
        check_type("ssc", ssc, StreamingContext, "a StreamingContext")
        check_property("zkQuorum", "zookeeper.connect", zkQuorum)
        check_property("groupId", "group.id", groupId)
        check_collection("topics", topics, dict)
        topics = check_streams(topics)
        params: dict[str, str] = {} if kafkaParams is None else kafkaParams
        check_collection("kafkaParams", params, dict)
        check_type("storageLevel", storageLevel, StorageLevel, "a StorageLevel")
        check_functions(keyDecoder=keyDecoder, valueDecoder=valueDecoder)
        own = {"zookeeper.connect": zkQuorum, "group.id": groupId, "zookeeper.connection.timeout.ms": "10000"}
        with naming("kafkaParams"):
            config = consumer_config({**params, **own})
        params.update(own)
        source = GroupSource(_seconds(ssc), config, topics, _context_id(ssc))
        return _stream(ssc, source, _converter(keyDecoder, valueDecoder, None))

    @staticmethod
    def createDirectStream(
        ssc: StreamingContext,
        topics: list[str],
        kafkaParams: dict[str, str],
        fromOffsets: dict[TopicAndPartition, int] | None = None,
        keyDecoder: NullableDecoder = utf8_decoder,
        valueDecoder: NullableDecoder = utf8_decoder,
        messageHandler: Callable[[KafkaMessageAndMetadata], Any] | None = None,
    ) -> KafkaDStream:
        """Return a stream of ``(key, message)`` pairs that uses neither a consumer group nor ZooKeeper.

        Args:
            topics: topics to read.
            kafkaParams: consumer properties, including ``metadata.broker.list`` or ``bootstrap.servers``.
            fromOffsets: starting offsets of the partitions to read; by default, all partitions are read, and
                ``auto.offset.reset`` determines where they start.
            keyDecoder: function that decodes keys.
            valueDecoder: function that decodes messages.
            messageHandler: function that converts records; its results replace the pairs.

        Raises:
            ConfigurationError: an argument is invalid, ``kafkaParams`` contains no brokers, a topic does not exist, or
                ``fromOffsets`` and ``topics`` contain different topics.
        """
        check_type("ssc", ssc, StreamingContext, "a StreamingContext")
        check_collection("topics", topics, list)
        check_topics(topics)
        check_collection("kafkaParams", kafkaParams, dict)
        check_functions(keyDecoder=keyDecoder, valueDecoder=valueDecoder)
        check_function("messageHandler", messageHandler)
        positions = None
        if fromOffsets is not None:
            check_collection("fromOffsets", fromOffsets, dict)
        if fromOffsets:
            positions = {
                _to_partition("fromOffsets", p): check_integer(f"fromOffsets: offset of {p}", offset, 0, OFFSET_MAX)
                for p, offset in fromOffsets.items()
            }
            named = {partition.topic for partition in positions}
            if named != set(topics):
                raise ConfigurationError(
                    f"The specified topics: {' '.join(sorted(topics))} do not equal to the topic from offsets: "
                    f"{' '.join(sorted(named))}"
                )
        broker_config(kafkaParams)
        convert = _converter(keyDecoder, valueDecoder, messageHandler)
        return _stream(ssc, DirectSource(_seconds(ssc), kafkaParams, topics, positions), convert)

    @staticmethod
    def createRDD(
        sc: SparkContext,
        kafkaParams: dict[str, str],
        offsetRanges: list[OffsetRange],
        leaders: dict[TopicAndPartition, Broker] | None = None,
        keyDecoder: NullableDecoder = utf8_decoder,
        valueDecoder: NullableDecoder = utf8_decoder,
        messageHandler: Callable[[KafkaMessageAndMetadata], Any] | None = None,
    ) -> KafkaRDD:
        """Return an RDD of ``(key, message)`` pairs, with one partition for each range.

        Args:
            kafkaParams: consumer properties, including ``metadata.broker.list`` or ``bootstrap.servers``.
            offsetRanges: ranges to read.
            leaders: known leaders by partition; missing leaders are looked up.
            keyDecoder: function that decodes keys.
            valueDecoder: function that decodes messages.
            messageHandler: function that converts records; its results replace the pairs.

        Raises:
            ConfigurationError: an argument is invalid, ``kafkaParams`` contains no brokers, or a range is not
                completely in its log or ends before it starts.
        """
        check_type("sc", sc, SparkContext, "a SparkContext")
        check_collection("kafkaParams", kafkaParams, dict)
        check_collection("offsetRanges", offsetRanges, list)
        for one in offsetRanges:
            check_type("offsetRanges: each range", one, OffsetRange, "an OffsetRange")
        check_functions(keyDecoder=keyDecoder, valueDecoder=valueDecoder)
        check_function("messageHandler", messageHandler)
        known_leaders = _convert_leaders(leaders)
        client = BrokerClient(kafkaParams)
        try:
            ranges = [(_TopicPartition(r.topic, r.partition), r.fromOffset, r.untilOffset) for r in offsetRanges]
            _check_ranges(client, ranges)
            tasks = [client.tasks({partition: (start, until)})[0] for partition, start, until in ranges]
        finally:
            client.close()
        for task in tasks:
            task.leaders.update({p: leader for p, leader in known_leaders.items() if p in task.ranges})
        convert = _converter(keyDecoder, valueDecoder, messageHandler)
        return _rdd(sc, tasks, list(offsetRanges), convert)


#: Offset ranges of the most recent KafkaRDDs in this process, by RDD id. An RDD that passes through the JVM becomes a
#: new Python object without the attributes of the original.
_ranges_of: OrderedDict[int, list[OffsetRange]] = OrderedDict()
_RETAINED_RDDS = 10_000

_Convert = Callable[[Iterator[FetchTask]], Iterator[Any]]


def _seconds(ssc: StreamingContext) -> float:
    """Return the batch interval in seconds."""
    return float(ssc._jssc.ssc().graph().batchDuration().milliseconds()) / 1000


def _to_partition(name: str, value: Any) -> _TopicPartition:
    """Return a ``TopicAndPartition`` that is a key of the argument ``name`` as a ``TopicPartition``."""
    check_type(f"{name}: each key", value, TopicAndPartition, "a TopicAndPartition")
    return _TopicPartition(value._topic, value._partition)


def _convert_leaders(leaders: Any) -> dict[_TopicPartition, tuple[int, Endpoint]]:
    """Return the argument ``leaders`` in the form that tasks use."""
    if leaders is None:
        return {}
    check_collection("leaders", leaders, dict)
    for broker in leaders.values():
        check_type("leaders: each value", broker, Broker, "a Broker")
    return {_to_partition("leaders", p): (-1, Endpoint(b._host, b._port)) for p, b in leaders.items()}


def _context_id(ssc: StreamingContext) -> str:
    """Return a unique id of a streaming context. Checkpoints contain it, so it is the same after a recovery."""
    return str(vars(ssc).setdefault("_zkconsumer_id", uuid.uuid4().hex))


def _stream(ssc: StreamingContext, source: Source, convert: _Convert) -> KafkaDStream:
    """Create the DStream of a source. Checkpoints contain the nested function as bytecode."""

    def batch(time: datetime, _tick: RDD[Any]) -> RDD[Any]:
        sc = SparkContext._active_spark_context
        assert sc is not None
        for one in source.siblings():
            follow(one)
        ranges = source.ranges_at(round(time.timestamp() * 1000))
        spans = [OffsetRange(p.topic, p.partition, *span) for p, span in sorted(ranges.items())]
        return _rdd(sc, source.tasks(ranges), spans, convert)

    # Spark calls ``batch`` for each batch time of the parent stream. The parent is a file stream, because other streams
    # either need an external system or cannot be recovered from a checkpoint.
    folder = tempfile.mkdtemp(prefix="zkconsumer-tick-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tick = ssc.textFileStream(folder)
    record_batches(tick)
    stream = KafkaDStream(tick, batch)
    stream._source = source
    return stream


def _rdd(sc: SparkContext, tasks: list[FetchTask], ranges: list[OffsetRange], convert: _Convert) -> KafkaRDD:
    rdd = sc.parallelize(tasks, max(1, len(tasks))).mapPartitions(convert)
    kafka_rdd = KafkaRDD(rdd._jrdd, sc, rdd._jrdd_deserializer)
    _ranges_of[int(kafka_rdd._jrdd.id())] = ranges
    while len(_ranges_of) > _RETAINED_RDDS:
        _ranges_of.popitem(last=False)
    return kafka_rdd


def _kafka_rdd(jrdd: Any, sc: SparkContext, deserializer: Any) -> KafkaRDD:
    return KafkaRDD(jrdd, sc, deserializer)


def _check_ranges(client: BrokerClient, ranges: list[tuple[_TopicPartition, int, int]]) -> None:
    """Check that the logs contain the ranges.

    Raises:
        ConfigurationError: a range is not completely in its log, or ends before it starts.
    """
    partitions = {partition for partition, _, _ in ranges}
    log_starts = client.logs.offsets(partitions, EARLIEST)
    log_ends = client.logs.offsets(partitions, LATEST)
    for partition, start, until in ranges:
        if start > until:
            raise ConfigurationError(
                f"Beginning offset {start} is after the ending offset {until} for topic {partition.topic} "
                f"partition {partition.partition}"
            )
        if start < log_starts[partition] or until > log_ends[partition]:
            raise ConfigurationError(
                f"Offsets not available on leader: {partition.topic} {partition.partition} has offsets from "
                f"{log_starts[partition]} to {log_ends[partition]}, but the range is {start} to {until}"
            )


def _converter(
    key_decoder: NullableDecoder,
    value_decoder: NullableDecoder,
    handler: Callable[[KafkaMessageAndMetadata], Any] | None,
) -> _Convert:
    """Return a function that converts records to ``(key, message)`` pairs, or to handler results.

    Checkpoints contain the nested functions as bytecode.
    """

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
