"""Invalid arguments of the topology API are rejected by the call that takes them, with their name and value.

The calls are generated from the signatures, so that a new parameter is tested, too.
"""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from zkconsumer.errors import TopologyError, ZkConsumerError
from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    Record,
    Topology,
    TopologyTestDriver,
    serdes,
    stores,
    windows,
)
from zkconsumer.topology.dsl import (
    Emit,
    JoinArguments,
    Materialized,
    Optimization,
    StreamsBuilder,
    UntilTimeLimit,
    UntilWindowCloses,
    session_windowed,
    time_windowed,
)

#: Methods that only other steps call.
INTERNAL = {"append", "build_node", "count_settings", "repartition_for_join", "require_history", "send_old_values"}
FOREIGN = object()
TUMBLING = windows.TimeWindows(size_ms=10)


class Nothing(Processor):
    """Drops all records."""

    def process(self, record: Record) -> None:
        """Drop the record."""


class World:
    """A builder and a topology, with an object of each class of the API."""

    def __init__(self) -> None:
        self.builder = StreamsBuilder()
        self.stream = self.builder.stream("in")
        self.table = self.builder.table("table", store=Materialized("v", history_ms=1_000))
        self.plain_table = self.builder.table("plain")
        self.global_table = self.builder.global_table("global")
        self.grouped = self.stream.group_by_key()
        self.grouped_table = self.plain_table.group_by(lambda key, value: (key, value))
        self.windowed = self.grouped.windowed_by(TUMBLING)
        self.cogrouped = self.grouped.cogroup(lambda _key, _value, total: total)
        self.branched = self.stream.split()
        self.store = stores.key_value("s")
        self.topology = Topology().add_source("a", "in").add_processor("p", Nothing, "a")
        self.topology.add_source("b", "other").add_state_store(self.store)


#: Annotations of parameters that accept a ``timedelta``.
DURATION_TYPES = ("Milliseconds", "Duration", "OptionalDuration")
#: Valid arguments by annotation, without ``| None``.
VALID: dict[str, Callable[[World], Any]] = {
    "str": lambda _: "x",
    "bool": lambda _: True,
    "int": lambda _: 10,
    **dict.fromkeys(DURATION_TYPES, lambda _: 10),
    "str | Sequence[str]": lambda _: "new",
    "str | TopicExtractor": lambda _: "out",
    "Iterable[StoreBuilder]": lambda _: [],
    "Serde": lambda _: serdes.STRING,
    "Serializer | Serde": lambda _: serdes.STRING,
    "Deserializer | Serde": lambda _: serdes.STRING,
    "StoreBuilder": lambda _: stores.key_value("g", logging=False),
    "StoreSettings": lambda _: None,
    "Windows": lambda _: TUMBLING,
    "JoinWindows": lambda _: windows.JoinWindows(before_ms=1, after_ms=1),
    "Emit": lambda _: Emit.ON_CLOSE,
    "Optimization": lambda _: Optimization.ALL,
    "Suppressed": lambda _: UntilTimeLimit(wait_ms=1),
    "KStream": lambda world: world.stream,
    "KTable": lambda world: world.plain_table,
    "KGroupedStream": lambda world: world.grouped,
    "Joinable": lambda world: world.plain_table,
    "ProcessorSupplier": lambda _: Nothing,
    "Topology": lambda world: world.topology,
    "ApplicationConfig": lambda _: ApplicationConfig(),
}
NUMBERS = (True, -1, 1 << 64, 1.5, "5", b"5", [5], FOREIGN)
DURATIONS = (timedelta(microseconds=1), timedelta(microseconds=1_999), timedelta(days=-1))
OBJECTS: tuple[Any, ...] = (5, "x", b"x", [], FOREIGN)
#: Invalid arguments by annotation, without ``| None``. None is also invalid unless the annotation contains it.
INVALID: dict[str, tuple[Any, ...]] = {
    "str": (5, b"x", [], FOREIGN, ""),
    "bool": (0, 1, "false", FOREIGN),
    "int": NUMBERS,
    **dict.fromkeys(DURATION_TYPES, (*NUMBERS, *DURATIONS)),
    "str | Sequence[str]": (5, FOREIGN, [5], ["a", ""], [None]),
    "str | TopicExtractor": (5, b"x", [], FOREIGN, ""),
    "Iterable[StoreBuilder]": (5, FOREIGN, ["s"], [FOREIGN]),
    "Serde": (*OBJECTS, serdes, str),
    "Serializer | Serde": (*OBJECTS, serdes),
    "Deserializer | Serde": (*OBJECTS, serdes),
    "StoreBuilder": (*OBJECTS, stores.key_value),
    "StoreSettings": (5, b"x", [], FOREIGN, stores.key_value("s"), Materialized),
    "Windows": (*OBJECTS, windows.TimeWindows, windows.JoinWindows(before_ms=1, after_ms=1)),
    "JoinWindows": (*OBJECTS, windows.JoinWindows, TUMBLING),
    "Emit": ("on update", "ON_UPDATE", 1, Emit, FOREIGN),
    "Optimization": ("all", 1, Optimization, FOREIGN),
    "Suppressed": (*OBJECTS, UntilWindowCloses, UntilTimeLimit),
    "KStream": (*OBJECTS, "table"),
    "KTable": OBJECTS,
    "KGroupedStream": OBJECTS,
    "Joinable": OBJECTS,
    "ProcessorSupplier": (*OBJECTS, lambda: 5, lambda: None),
    "Topology": OBJECTS,
    "ApplicationConfig": OBJECTS,
}
#: Names that are valid although they look like another kind of invalid argument.
LEGAL = {("add_global_store", "timestamp_extractor")}


class Call(NamedTuple):
    """A call of the API.

    Attributes:
        where: class or module, and function.
        function: returns the function, given the objects.
        parameters: parameters by name.
        valid: valid arguments of this call by name, where they differ from those of the annotation.
    """

    where: str
    function: Callable[[World], Callable[..., Any]]
    parameters: dict[str, inspect.Parameter]
    valid: Mapping[str, Callable[[World], Any]]


def plain_annotation(parameter: inspect.Parameter) -> str:
    """Return the annotation without ``| None``, and without type arguments of classes."""
    text = getattr(parameter.annotation, "__forward_arg__", str(parameter.annotation)).removesuffix(" | None")
    return text if text in VALID or text.startswith("Callable[") else text.partition("[")[0]


def calls() -> Iterator[Call]:
    """Yield the functions of the API that declare or configure something."""
    objects = {
        "builder": {"stream": {"topics": "new"}, "table": {"topic": "new"}, "global_table": {"topic": "new"}},
        "stream": {"process": {"connected": "v"}, "process_values": {"connected": "v"}},
        "plain_table": {},
        "grouped": {},
        "grouped_table": {},
        "windowed": {},
        "cogrouped": {},
        "branched": {},
        "topology": {
            "add_source": {"topics": "new"},
            "add_processor": {"parents": "a"},
            "add_sink": {"parents": "a"},
            "add_state_store": {"processors": "p"},
            "connect_processor_and_state_stores": {"processor": "p", "stores": "s"},
            "add_global_store": {"source": "gs", "processor": "gp", "topic": "gt"},
            "copartition": {"sources": "a"},
        },
    }
    example = World()
    for name, special in objects.items():
        for method, function in inspect.getmembers(getattr(example, name), inspect.ismethod):
            if method.startswith("_") or method in INTERNAL or (name, method) == ("grouped", "build"):
                continue
            if method in ("resolve", "subtopology", "combine", "describe", "view"):
                continue
            valid = {one: partial(return_text, text) for one, text in special.get(method, {}).items()}
            get = partial(lambda world, name, method: getattr(getattr(world, name), method), name=name, method=method)
            yield Call(f"{name}.{method}", get, dict(inspect.signature(function).parameters), valid)
    for declare in (
        *(stores.key_value, stores.timestamped_key_value, stores.versioned_key_value, stores.session),
        *(stores.window, stores.timestamped_window, time_windowed, session_windowed),
        *(Materialized, UntilTimeLimit, UntilWindowCloses, ApplicationConfig),
        *(windows.TimeWindows, windows.SlidingWindows, windows.SessionWindows, windows.JoinWindows),
    ):
        parameters = dict(inspect.signature(declare).parameters)
        yield Call(declare.__name__, partial(return_function, declare), parameters, {"page_bytes": lambda _: 2_048})


def return_text(text: str, _world: World) -> str:
    """Return a valid text."""
    return text


def return_function(function: Callable[..., Any], _world: World) -> Callable[..., Any]:
    """Return a function that belongs to no object."""
    return function


CALLS = list(calls())


def valid_arguments(call: Call, world: World) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and named arguments that are valid, for parameters without a default."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in call.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            named["windows" if name == "arguments" else name] = None
            continue
        is_repeated = parameter.kind is parameter.VAR_POSITIONAL
        if parameter.default is not parameter.empty and name not in call.valid:
            continue
        value = valid_argument(call, name, world)
        if is_repeated:
            positional += [value, "b"] if name == "sources" else [value]
        elif parameter.kind is parameter.KEYWORD_ONLY:
            named[name] = value
        else:
            positional.append(value)
    named.pop("windows", None) if "arguments" in call.parameters else None
    return positional, named


def valid_argument(call: Call, name: str, world: World) -> Any:
    """Return a valid argument."""
    if name in call.valid:
        return call.valid[name](world)
    annotation = plain_annotation(call.parameters[name])
    return VALID[annotation](world) if annotation in VALID else (lambda *_: None)


def wrong_arguments(call: Call) -> Iterator[tuple[str, Any]]:
    """Yield parameters and invalid arguments."""
    for name, parameter in call.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        annotation = plain_annotation(parameter)
        found = INVALID.get(annotation, (5, "x", b"x", [], FOREIGN, serdes.STRING))
        if name == "offset_reset":
            found = (*found, "none", "EARLIEST", "earliest ")
        if name in ("before_ms", "after_ms"):
            found = tuple(one for one in found if one not in (-1, timedelta(days=-1)))
        if name == "max_task_idle_ms":
            found = (*(one for one in found if one != -1), -2)
        if name == "emits_early" and call.where == "UntilWindowCloses":
            continue
        is_optional = str(parameter.annotation).endswith("None") or annotation in ("StoreSettings", "OptionalDuration")
        for value in (*found, *(() if is_optional else (None,))):
            yield name, value


def call_with(call: Call, name: str, value: Any) -> Any:
    """Make a call with one argument replaced, and return its result."""
    world = World()
    positional, named = valid_arguments(call, world)
    order = [
        one for one, parameter in call.parameters.items() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and (parameter.default is parameter.empty or one in call.valid)
    ]  # fmt: skip
    parameter = call.parameters[name]
    if name == "pattern":  # an alternative to topics
        del positional[order.index("topics")]
    if parameter.kind is parameter.VAR_POSITIONAL:
        positional = [*positional[: len(order)], value, *(["b"] if name == "sources" else [])]
    elif name in order:
        positional[order.index(name)] = value
    else:
        named[name] = value
    return call.function(world)(*positional, **named)


@pytest.mark.parametrize("call", CALLS, ids=[call.where for call in CALLS])
def test_valid_arguments_are_accepted(call: Call) -> None:
    world = World()
    positional, named = valid_arguments(call, world)
    if "arguments" in call.parameters and call.where.endswith("outer_join"):
        named["windows"], positional[0] = VALID["JoinWindows"](world), world.stream
    call.function(world)(*positional, **named)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint16])
def test_numpy_integers_are_accepted(kind: type[Any]) -> None:
    """They are converted, because compiled modules and pickles use ints."""
    count = 0
    for call in CALLS:
        for name, parameter in call.parameters.items():
            if plain_annotation(parameter) in ("int", *DURATION_TYPES):
                value = valid_argument(call, name, World())
                call_with(call, name, kind(value))
                count += 1
    assert count > 20
    declared = windows.TimeWindows(size_ms=kind(10), advance_ms=kind(5))
    assert [type(value) for value in vars(declared).values()] == [int, int, int]


@pytest.mark.parametrize("call", CALLS, ids=[call.where for call in CALLS])
def test_durations_can_be_timedeltas(call: Call) -> None:
    """The results equal those with integers, also in the types of their attributes, which pickles contain."""
    for name in (one for one in call.parameters if one.endswith("_ms")):
        assert plain_annotation(call.parameters[name]) in DURATION_TYPES
        results = [call_with(call, name, value) for value in (10, timedelta(milliseconds=10))]
        assert pickle.dumps(results[0]) == pickle.dumps(results[1])


@pytest.mark.parametrize("call", CALLS, ids=[call.where for call in CALLS])
def test_invalid_arguments_are_rejected(call: Call) -> None:
    for name, value in wrong_arguments(call):
        try:
            call_with(call, name, value)
        except ZkConsumerError as error:
            check_message(call, name, value, str(error))
        except Exception as error:
            raise AssertionError(f"{call.where}({name}={value!r}) raised {error!r}") from error
        else:
            raise AssertionError(f"{call.where}({name}={value!r}) was accepted")


def check_message(call: Call, name: str, value: Any, message: str) -> None:
    """Fail unless a message names the argument or its role, and the value."""
    words = {"topics": "topic", "stores": "store", "parents": "parent", "processors": "processor", "builder": "store"}
    words |= {"sources": "source"}
    if call.where == "topology.add_global_store":
        words |= {"source": "node", "processor": ""}
    assert words.get(name, name) in message, (call.where, name, value, message)
    described = [repr(value), type(value).__name__, str(value)]
    described += [repr(item) for item in value] if isinstance(value, list) else []
    assert any(text and text in message for text in described) or callable(value), (call.where, name, value, message)


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_invalid_join_arguments_are_rejected(kind: str) -> None:
    for name, reference in JoinArguments.__annotations__.items():
        annotation = reference.__forward_arg__.removesuffix(" | None")
        invalid = INVALID.get(annotation, OBJECTS)
        for value in invalid:
            world = World()
            arguments = {name: value}
            if name not in ("grace_ms", "key", "windows"):
                arguments["windows"] = VALID["JoinWindows"](world)
            other = {"grace_ms": world.table, "key": world.global_table}.get(name, world.stream)
            with pytest.raises(TopologyError, match=f"{name} must|a name must"):
                getattr(world.stream, kind)(other, lambda *_: None, **arguments)


def first(one: Any, _other: Any) -> Any:
    """Return the first argument."""
    return one


@pytest.mark.parametrize("seed", range(20))
def test_objects_of_another_builder_are_rejected(seed: int) -> None:
    rng, one, other = random.Random(seed), World(), World()
    join = windows.JoinWindows(before_ms=1, after_ms=1)
    kind = rng.choice(("join", "left_join"))
    cases: list[Callable[[], object]] = [
        lambda: one.stream.merge(other.stream),
        lambda: getattr(one.stream, kind)(other.stream, max, windows=join),
        lambda: one.stream.outer_join(other.stream, first, windows=join),
        lambda: getattr(one.stream, kind)(other.plain_table, max),
        lambda: getattr(one.stream, kind)(other.global_table, max, key=max),
        lambda: getattr(one.plain_table, kind)(other.plain_table, max),
        lambda: one.plain_table.outer_join(other.plain_table, first),
        lambda: one.cogrouped.cogroup(other.grouped, lambda *_: None),
    ]
    for case in rng.sample(cases, len(cases)):
        with pytest.raises(TopologyError, match="must belong to the same StreamsBuilder"):
            case()


@pytest.mark.parametrize("pattern", ["a b", "a,b", "(", "[", "*", "'a'"])
def test_invalid_patterns_are_rejected(pattern: str) -> None:
    world = World()
    for read in (world.builder.stream, partial(world.topology.add_source, "new")):
        with pytest.raises(TopologyError, match="pattern|regex"):
            read(pattern=pattern)


def test_store_settings_must_fit_windows() -> None:
    for sized in (TUMBLING, windows.SlidingWindows(difference_ms=10), windows.SessionWindows(gap_ms=10)):
        for settings, message in (
            (Materialized(history_ms=10), "history_ms must be None for windows, got 10"),
            (Materialized(retention_ms=5), "retention_ms must be at least"),
        ):
            windowed = World().grouped.windowed_by(sized)
            cogrouped = World().cogrouped.windowed_by(sized)
            merger = (lambda *_: None) if isinstance(sized, windows.SessionWindows) else None
            for declare in (
                partial(windowed.count, store=settings),
                partial(windowed.reduce, max, store=settings),
                partial(windowed.aggregate, int, max, merger, store=settings),
                partial(cogrouped.aggregate, int, merger, store=settings),
            ):
                with pytest.raises(TopologyError, match=message):
                    declare()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("now_ms", value) for value in ("5", 1.5, True, FOREIGN)),
        *(("config", value) for value in OBJECTS),
        *(("topology", value) for value in (*OBJECTS, None, StreamsBuilder())),
        *(("state_file", value) for value in (5, FOREIGN, [])),
    ],
)
def test_invalid_driver_arguments_are_rejected(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"topology": World().topology, name: value}
    with pytest.raises(ZkConsumerError, match=f"{name} must be"):
        TopologyTestDriver(**arguments)


@pytest.mark.parametrize(
    ("method", "arguments", "name"),
    [
        *(("advance_wall_clock_time", [value], "advance_ms") for value in (-1, "5", None, 1.5, True, FOREIGN)),
        *(("create_input_topic", [value], "topic") for value in (5, None, "", FOREIGN)),
        *(("create_output_topic", [value], "topic") for value in (5, None, "", FOREIGN)),
        *(("create_input_topic", ["in", value], "key_serializer") for value in OBJECTS),
        *(("create_input_topic", ["in", None, value], "value_serializer") for value in (5, serdes)),
        *(("create_output_topic", ["in", value], "key_deserializer") for value in OBJECTS),
        *(("create_input_topic", ["in", None, None, value], "start_ms") for value in ("5", None, 1.5)),
        *(("create_input_topic", ["in", None, None, 0, value], "auto_advance_ms") for value in (-1, "5", None, 1.5)),
        *(("get_state_store", [value], "name") for value in (5, None, FOREIGN)),
    ],
)
def test_invalid_arguments_of_driver_methods_are_rejected(method: str, arguments: list[Any], name: str) -> None:
    with TopologyTestDriver(World().topology) as driver, pytest.raises(ZkConsumerError, match=f"{name} must"):
        getattr(driver, method)(*arguments)


def test_every_setting_is_generated() -> None:
    found = {call.where: set(call.parameters) for call in CALLS}
    for kind in (Materialized, ApplicationConfig, UntilTimeLimit):
        assert found[kind.__name__] == {one.name for one in dataclasses.fields(kind)}
    assert len(CALLS) > 70
