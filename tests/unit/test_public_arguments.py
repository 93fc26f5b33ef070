"""Invalid arguments of the public API are rejected by the call that takes them, with their name.

The calls are generated from the signatures of the public functions and classes, so that new functions and parameters
are tested, too. ``test_topology_arguments`` tests the calls of topologies.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers.no_session import NoSession
from unit import test_topology_arguments
from unit.test_stream import Fed

import zkconsumer
from zkconsumer import TopicPartition
from zkconsumer.devcluster import DevCluster
from zkconsumer.errors import ConfigurationError, ZkConsumerError
from zkconsumer.health_server import HealthServer
from zkconsumer.spark import QuerySettings, StreamsApp
from zkconsumer.spark.kafka_utils import KafkaDStream
from zkconsumer.topology import ApplicationConfig, Topology, TopologyTestDriver

MODULES = (
    *("zkconsumer", "zkconsumer.spark", "zkconsumer.spark.kafka_utils", "zkconsumer.devcluster"),
    *("zkconsumer.health_server", "zkconsumer.prometheus", "zkconsumer.simple_consumer"),
    *("zkconsumer.topology", "zkconsumer.topology.dsl", "zkconsumer.topology.stores"),
)
FOREIGN = object()

#: Functions, methods and classes whose arguments are not tested here, by reason.
EXEMPT = {
    "created or called only by this package or by Spark": {
        "ConsumerConfig",
        "ConsumerConfig.parse",
        "FetchedMessages",
        "KafkaMessageAndMetadata",
        "KafkaStream",
        "Lag",
        "PartitionMetadata",
        "QueryListener.observes",
        "QueryListener.onQueryIdle",
        "QueryListener.onQueryProgress",
        "QueryListener.onQueryStarted",
        "QueryListener.onQueryTerminated",
        "QuerySettings.commits_to_kafka",
        "Whitelist.is_topic_allowed",
        "Whitelist.select",
        "Blacklist.is_topic_allowed",
        "Blacklist.select",
        "ZkConsumerDataSource.reader",
        "ZkConsumerDataSource.streamReader",
        "ZkConsumerDataSource.streamWriter",
        "ZkConsumerDataSource.writer",
    },
    "implemented by applications": {
        "BatchDecoder.decode",
        "BatchDecoder.decode_range",
        "BatchDecoder.open",
        "ConsumerRebalanceListener.before_releasing_partitions",
        "ConsumerRebalanceListener.before_starting_fetchers",
        "RecordDecoder.decode",
        "RecordDecoder.event_time",
        "RecordDecoder.is_end_of_stream",
        "RecordDecoder.open",
    },
    "called for each record, so a check would be too slow": {"string_decoder", "utf8_decoder"},
    "test_kafka_utils_arguments needs a Spark context": {
        "Broker",
        "KafkaUtils.createDirectStream",
        "KafkaUtils.createRDD",
        "KafkaUtils.createStream",
        "OffsetRange",
        "TopicAndPartition",
    },
    "a client for tests, which talks to brokers": {
        "Admin",
        "Admin.offsets",
        "Admin.produce",
        "Admin.produce_all",
        "Admin.wait_for_brokers",
        "Admin.wait_for_leaders",
        "DevCluster.create_topic",
        "ExistingCluster.create_topic",
    },
}
#: Classes of topologies whose methods are not declarations: the runtime, stores and nodes, which check names and times.
RUNTIME = {
    *("ErrorContext", "KeyValueStore", "Lifecycle", "MemoryPages", "PageStore", "Processor", "ProcessorContext"),
    *("ProcessorNode", "Remembered", "ResolvedTopology", "SessionStore", "SinkNode", "SourceNode", "StateFile"),
    *("StateStore", "StoreBuilder", "StoreContext", "StreamTask", "Subtopology", "TaskRuntime", "TestInputTopic"),
    *("TestOutputTopic", "TestRecord", "TimestampedKeyValueStore", "TimestampedWindowStore"),
    *("VersionedKeyValueStore", "WindowStore"),
}
#: Other topology methods that users do not call, or that ``test_topology_arguments`` calls in another way.
TOPOLOGY_EXEMPT = {
    *(f"{one}.{name}" for one in ("KStream", "KTable", "KGroupedStream") for name in test_topology_arguments.INTERNAL),
    *("KGroupedStream.build", "Topology.resolve", "Topology.subtopology", "GlobalKTable"),
    *("ApplicationConfig.deserialization_handler", "ApplicationConfig.processing_handler"),
    *("ApplicationConfig.production_handler", "ApplicationConfig.timestamp_extractor"),
}
#: Classes of the DSL and the names of their objects in ``test_topology_arguments``.
DSL_OBJECTS = {
    "StreamsBuilder": "builder",
    "KStream": "stream",
    "KTable": "plain_table",
    "KGroupedStream": "grouped",
    "KGroupedTable": "grouped_table",
    "WindowedKStream": "windowed",
    "CogroupedKStream": "cogrouped",
    "BranchedKStream": "branched",
    "Topology": "topology",
}

CONFIG = zkconsumer.ConsumerConfig.from_dict({"group.id": "g", "zookeeper.connect": "127.0.0.1:1"})
PARTITION = TopicPartition("t", 0)


def without_context() -> Any:
    """Return a DStream that belongs to no streaming context."""
    stream = object.__new__(KafkaDStream)
    stream.__dict__["_sc"] = None
    return stream


#: Objects whose methods are called, by class. No call opens a connection.
OBJECTS: Mapping[str, Callable[[], Any]] = {
    "Admin": lambda: importlib.import_module("zkconsumer.devcluster").Admin([]),
    "ConsumerConfig": lambda: zkconsumer.ConsumerConfig,
    "KafkaDStream": without_context,
    "KafkaStream": lambda: Fed(timeout=None).stream,
    "SimpleConsumer": lambda: zkconsumer.SimpleConsumer("127.0.0.1", 1),
    "TopologyTestDriver": lambda: TopologyTestDriver(Topology().add_source("s", "t")),
    "StreamsApp": lambda: object.__new__(StreamsApp),
    "ZookeeperConsumerConnector": lambda: zkconsumer.create_consumer(CONFIG),
}
#: Valid arguments by name, for the parameters that are checked before the tested one.
VALID: Mapping[str, Any] = {
    "checkpoint": "c",
    "config": ApplicationConfig(),
    "earliest_or_latest": -2,
    "group": "g",
    "host": "127.0.0.1",
    "offset": 0,
    "offsets": {PARTITION: 0},
    "partition": 0,
    "partitions": [PARTITION],
    "path": "file",
    "port": 1,
    "properties": {},
    "storage": "kafka",
    "topic": "t",
    "topic_count": {"t": 1},
    "topics": "t",
    "topic_filter": zkconsumer.Whitelist("t"),
    "topology": test_topology_arguments.World().topology,
    "total": 1,
    "zookeeper_connect": "z",
    "bootstrap_servers": "b",
}
NUMBERS = (True, 1.5, "5", b"5", [5], 1 << 64, -(1 << 64), FOREIGN)
#: Invalid arguments by annotation, without ``| None``; see ``invalid_values``.
INVALID: Mapping[str, tuple[Any, ...]] = {
    "bool": (0, 1, "false", FOREIGN),
    "float": (True, "5", -1, float("nan"), FOREIGN),
    "int": NUMBERS,
    **dict.fromkeys(test_topology_arguments.DURATION_TYPES, (*NUMBERS, *test_topology_arguments.DURATIONS)),
    "str": (5, b"x", [], FOREIGN),
    "str | Collection[str]": (5, b"x", [], [5], FOREIGN),
    "str | PathLike[str]": (5, b"x", [], FOREIGN),
}
#: Invalid arguments for all other annotations.
OTHERS = (5, "x", FOREIGN)
#: Words of which the message contains one, for parameters that it does not name exactly.
WORDS = {
    "topic_count": ("topic_count", "streams"),
    "config": ("config", "properties file"),
    "topics": ("topic",),
    "partitions": ("partition",),
    "offsets": ("offset", "partition"),
    "text": ("regular expression",),
    "earliest_or_latest": ("earliest_or_latest", "timestamp"),
    "streams": ("number of streams",),
}


class Call(NamedTuple):
    """A public function or method.

    Attributes:
        where: its name, with that of the class.
        find: returns the function.
        parameters: its parameters by name.
    """

    where: str
    find: Callable[[], Callable[..., Any]]
    parameters: Mapping[str, inspect.Parameter]


def identity(function: Any) -> Any:
    """Return the function of a ``Call`` that is not a method."""
    return function


def find_method(name: str, method: str) -> Any:
    """Return a method of an object of a class."""
    return getattr(OBJECTS[name](), method)


def public_calls() -> Iterator[Call]:
    """Yield all public functions, classes and methods that have parameters."""
    for module in MODULES:
        found = importlib.import_module(module)
        for name in sorted(found.__all__):
            value = getattr(found, name) if not name.startswith("_") else None
            if inspect.isfunction(value):
                yield Call(name, partial(identity, value), inspect.signature(value).parameters)
            elif inspect.isclass(value) and not issubclass(value, BaseException):
                yield from calls_of(name, value)


def calls_of(name: str, kind: type) -> Iterator[Call]:
    """Yield the constructor and the public methods of a class that this package defines."""
    for method, function in inspect.getmembers(kind, lambda one: inspect.isfunction(one) or inspect.ismethod(one)):
        is_constructor = method == "__init__"
        if (method.startswith("_") and not is_constructor) or not function.__module__.startswith("zkconsumer"):
            continue
        parameters = dict(inspect.signature(function).parameters)
        parameters.pop("self", None)
        if is_constructor:
            yield Call(name, partial(identity, kind), parameters)
        elif parameters:
            yield Call(f"{name}.{method}", partial(find_method, name, method), parameters)


def is_tested_as_topology(call: Call) -> bool:
    """Return whether ``test_topology_arguments`` tests the call, or its class belongs to the runtime."""
    kind, _, method = call.where.partition(".")
    tested = {one.where for one in test_topology_arguments.CALLS}
    if kind in RUNTIME or call.where in TOPOLOGY_EXEMPT or call.where in tested:
        return True
    return kind in DSL_OBJECTS and (not method or f"{DSL_OBJECTS[kind]}.{method}" in tested)


ALL = list({call.where: call for call in public_calls() if call.parameters}.values())
EXEMPTED = {where for group in EXEMPT.values() for where in group}
CALLS = [call for call in ALL if call.where not in EXEMPTED and not is_tested_as_topology(call)]


def test_exemptions_exist() -> None:
    assert {call.where for call in ALL} >= EXEMPTED
    assert {call.where for call in ALL} >= {"StreamsApp", "QuerySettings", "DevCluster", "KafkaStream.batches"}


def invalid_values(parameter: inspect.Parameter) -> Iterator[Any]:
    """Yield values that are invalid for a parameter."""
    annotation = str(parameter.annotation)
    plain = annotation.removesuffix(" | None")
    yield from INVALID.get(plain, OTHERS if plain != "Any" else (5, "x"))
    if plain == annotation:
        yield None


@pytest.mark.parametrize("call", CALLS, ids=[call.where for call in CALLS])
def test_invalid_argument_is_rejected(call: Call) -> None:
    for name, parameter in call.parameters.items():
        for value in invalid_values(parameter):
            positional = [value] if parameter.kind is parameter.VAR_POSITIONAL else []
            needed = {
                one: VALID[one]
                for one, other in call.parameters.items()
                if other.default is other.empty and one != name and one in VALID
            }
            arguments = {**needed, **({} if positional else {name: value})}
            for one, other in call.parameters.items():  # all others are checked later
                if other.default is other.empty and one not in arguments and not positional:
                    arguments[one] = SPARK
            described = f"{call.where}({name}={value!r})"
            try:
                call.find()(*positional, **arguments)
            except ZkConsumerError as error:
                assert any(word in str(error) for word in WORDS.get(name, (name,))), (described, str(error))
            except Exception as error:
                raise AssertionError(f"{described} raised {error!r}") from error
            else:
                raise AssertionError(f"{described} was accepted")


@pytest.mark.parametrize("name", ["max_restarts", "trigger_ms", "max_rows", "brokers", "port"])
def test_numpy_integers_are_accepted_and_booleans_are_rejected(name: str) -> None:
    accept: dict[str, Callable[[Any], object]] = {
        "max_restarts": lambda value: StreamsApp(
            VALID["topology"], ApplicationConfig(), SPARK, "c", {"bootstrap.servers": "b:1"}, max_restarts=value
        ),
        "trigger_ms": lambda value: QuerySettings(trigger_ms=value).trigger_ms,
        "max_rows": lambda value: OBJECTS["KafkaStream"]().batches(value),
        "brokers": lambda value: DevCluster(value),
        "port": lambda value: HealthServer(SPARK, value).port,
    }
    for integer in (np.int64(7), np.uint8(7)):
        assert type(accept[name](integer)) is not type(integer)
    for other in (np.bool_(True), np.float64(7), np.array([7, 8])):
        with pytest.raises(ConfigurationError, match=name):
            accept[name](other)


class Placeholder(NoSession):
    """Has the attributes that identify a Spark session and a source of ``HealthServer``."""

    health = object()


SPARK: Any = Placeholder()
