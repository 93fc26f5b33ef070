"""Tests that ``KafkaUtils`` rejects invalid arguments in the call that takes them, and names the argument."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark import SparkContext, StorageLevel
from pyspark.streaming import StreamingContext

from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.dstreams.arguments import with_two_arguments
from zkconsumer.spark.kafka_utils import Broker, KafkaUtils, OffsetRange, TopicAndPartition

#: Contexts that the calls must not use, because the arguments are checked first.
SSC: Any = object.__new__(StreamingContext)
SC: Any = object.__new__(SparkContext)
_UNREACHABLE: dict[Any, Any] = {"metadata.broker.list": "127.0.0.1:1"}
_PARTITION = TopicAndPartition("t", 0)

#: Invalid values of each argument type.
_NEVER = [object(), 5, 1.5, b"t", ("t",), {1, 2}, True]
_NO_DICT = [*_NEVER, "t", ["t"]]
_NO_LIST = [*_NEVER, "t", {"t": 1}]
_NO_TEXT = [*_NEVER, None, ["t"], {"t": 1}]
_NO_FUNCTION = ["utf-8", *_NEVER]
_NO_TOPICS = ["", "a b", "a/b", "..", None, 5, b"t", "t" * 250]
_NO_NUMBERS = [None, "5", 1.5, -1, 1 << 63, True, b"5"]
_NO_PARAMS: list[dict[Any, Any]] = [
    {"auto.offset.reset": "x"},
    {5: "x"},
    {"fetch.message.max.bytes": "many"},
    {"socket.timeout.ms": -1},
]

#: For each call, its valid arguments and the invalid values of each argument.
CALLS: dict[Callable[..., Any], tuple[dict[str, Any], dict[str, list[Any]]]] = {
    KafkaUtils.createStream: (
        {"ssc": SSC, "zkQuorum": "127.0.0.1:1", "groupId": "g", "topics": {"t": 1}},
        {
            "ssc": [None, *_NEVER],
            "zkQuorum": ["", " ", "a:b:c", *_NO_TEXT],
            "groupId": ["", "a/b", *_NO_TEXT],
            "topics": [None, {}, *_NO_DICT]
            + [{topic: 1} for topic in _NO_TOPICS]
            + [{"t": count} for count in (0, *_NO_NUMBERS)],
            "kafkaParams": [*_NO_DICT, *_NO_PARAMS],
            "storageLevel": ["MEMORY_ONLY", None, *_NEVER],
            "keyDecoder": [None, *_NO_FUNCTION],
            "valueDecoder": [None, *_NO_FUNCTION],
        },
    ),
    KafkaUtils.createDirectStream: (
        {"ssc": SSC, "topics": ["t"], "kafkaParams": _UNREACHABLE},
        {
            "ssc": [None, *_NEVER],
            "topics": [None, *_NO_LIST, *([topic] for topic in _NO_TOPICS)],
            "kafkaParams": [None, {}, *_NO_DICT, *(_UNREACHABLE | params for params in _NO_PARAMS)]
            + [{"metadata.broker.list": servers} for servers in ("a", "a:b", 5, ",")],
            "fromOffsets": [*_NO_DICT, {"t": 1}, {("t", 0): 1}, *({_PARTITION: count} for count in _NO_NUMBERS)],
            "keyDecoder": [None, *_NO_FUNCTION],
            "valueDecoder": [None, *_NO_FUNCTION],
            "messageHandler": _NO_FUNCTION,
        },
    ),
    KafkaUtils.createRDD: (
        {"sc": SC, "kafkaParams": _UNREACHABLE, "offsetRanges": [OffsetRange("t", 0, 0, 1)]},
        {
            "sc": [None, SSC, *_NEVER],
            "kafkaParams": [None, {}, *_NO_DICT, *(_UNREACHABLE | params for params in _NO_PARAMS)],
            "offsetRanges": [None, *_NO_LIST, [None], [("t", 0, 0, 1)], ["t"]],
            "leaders": [*_NO_DICT, {"t": Broker("h", 1)}, {_PARTITION: "h:1"}, {_PARTITION: None}],
            "keyDecoder": [None, *_NO_FUNCTION],
            "valueDecoder": [None, *_NO_FUNCTION],
            "messageHandler": _NO_FUNCTION,
        },
    ),
    OffsetRange: (
        {"topic": "t", "partition": 0, "fromOffset": 0, "untilOffset": 1},
        {"topic": _NO_TEXT, "partition": _NO_NUMBERS, "fromOffset": _NO_NUMBERS, "untilOffset": _NO_NUMBERS},
    ),
    TopicAndPartition: ({"topic": "t", "partition": 0}, {"topic": _NO_TEXT, "partition": _NO_NUMBERS}),
    Broker: ({"host": "h", "port": 1}, {"host": _NO_TEXT, "port": [0, 65_536, *_NO_NUMBERS]}),
}


def wrong_calls() -> Iterator[Any]:
    """Yield each call with each invalid argument."""
    for call, (valid, wrong) in CALLS.items():
        for name, values in wrong.items():
            yield pytest.param(call, valid, name, values, id=f"{call.__name__}-{name}")


@pytest.mark.parametrize(("call", "valid", "name", "values"), list(wrong_calls()))
def test_invalid_argument_is_named(call: Any, valid: dict[str, Any], name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ConfigurationError, match=rf"\b{name}\b"):
            call(**valid | {name: value})


@pytest.mark.parametrize("seed", range(20))
def test_one_of_several_invalid_arguments_is_named(seed: int) -> None:
    rng = random.Random(seed)
    call, (valid, wrong) = rng.choice(list(CALLS.items()))
    chosen = {name: rng.choice(wrong[name]) for name in rng.sample(sorted(wrong), 2)}
    with pytest.raises(ConfigurationError, match=rf"\b({'|'.join(chosen)})\b"):
        call(**valid | chosen)


def test_invalid_arguments_leave_params_unchanged() -> None:
    params = {"auto.offset.reset": "x"}
    with pytest.raises(ConfigurationError, match=re.escape("'auto.offset.reset'")):
        KafkaUtils.createStream(SSC, "127.0.0.1:1", "g", {"t": 1}, params)
    assert params == {"auto.offset.reset": "x"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: KafkaUtils.createStream(SSC, "z", "g", ["t"]), "topics should be dict"),  # type: ignore[arg-type]
        (lambda: KafkaUtils.createDirectStream(SSC, "t", {}), "topics should be list"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_raise_type_error(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


class Sink:
    """Old jobs pass methods and objects."""

    def rdd(self, rdd: Any) -> Any:
        return "one", rdd

    def both(self, time: Any, rdd: Any) -> Any:
        return "two", time, rdd

    def both_and_default(self, time: Any, rdd: Any, table: str = "t") -> Any:
        return "two", time, rdd

    @staticmethod
    def static(rdd: Any) -> Any:
        return "one", rdd

    def __call__(self, rdd: Any) -> Any:
        return "one", rdd


def _save(table: str, rdd: Any) -> Any:
    return "one", rdd


@pytest.mark.parametrize(
    "func",
    [
        Sink().rdd,
        Sink().both,
        Sink().both_and_default,
        Sink.static,
        Sink(),
        functools.partial(_save, "t"),
        lambda rdd: ("one", rdd),
        lambda time, rdd: ("two", time, rdd),
        lambda time, rdd, table="t": ("two", time, rdd),
        lambda *arguments: ("two", *arguments),
        lambda rdd, *, table="t": ("one", rdd),
    ],
)
def test_functions_are_called_with_one_or_two_arguments(func: Any) -> None:
    assert with_two_arguments(func)("time", "rdd") in [("one", "rdd"), ("two", "time", "rdd")]  # type: ignore[arg-type]


def test_two_arguments_are_preferred_as_in_spark() -> None:
    """Spark passes the time to the first parameter, even if the second one has a default."""
    assert with_two_arguments(lambda first, second="x": (first, second))("time", "rdd") == ("time", "rdd")  # type: ignore[arg-type]


@pytest.mark.parametrize("func", [None, 5, lambda: None, lambda a, b, c: None, lambda *, rdd: None, "x"])
def test_other_functions_are_rejected(func: Any) -> None:
    with pytest.raises(TypeError, match="func should take one or two arguments, got"):
        with_two_arguments(func)


def test_storage_level_may_be_given() -> None:
    with pytest.raises(ConfigurationError, match="kafkaParams"):
        KafkaUtils.createStream(
            SSC, "z", "g", {"t": 1}, {"group.id": "x", "queued.max.message.chunks": "x"}, StorageLevel.DISK_ONLY
        )
