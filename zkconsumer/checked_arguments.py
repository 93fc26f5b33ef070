"""Checks of the arguments of public functions, by the annotations of their parameters.

An invalid argument is rejected by the call that takes it, not by ``StreamsBuilder.build`` or by a task.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from importlib import import_module
from itertools import repeat
from os import PathLike
from typing import Any, ForwardRef, NamedTuple, TypeVar, cast

from zkconsumer.argument_checks import reject, to_flag, to_integer, to_number
from zkconsumer.durations import to_milliseconds
from zkconsumer.errors import ConfigurationError, TopologyError, ZkConsumerError

F = TypeVar("F", bound=Callable[..., Any])

_MAX_INT32, _MAX_INT64 = (1 << 31) - 1, (1 << 63) - 1
#: Maximum duration in seconds, about 30 years, which replaces longer ones. ``threading`` rejects long timeouts.
_MAX_DURATION_S = 1e9
#: Minimum and maximum of integers, by parameter name. All others are non-negative 64-bit integers.
_RANGES = {
    **dict.fromkeys(("brokers", "partitions", "replication", "total"), (1, _MAX_INT32)),
    **dict.fromkeys(("broker_port", "zookeeper_port"), (1, _MAX_INT32)),  # ``DevCluster.start`` checks the maximum
    "max_task_idle_ms": (-1, _MAX_INT64),
    "page_bytes": (1_024, _MAX_INT64),
    "before_ms": (-_MAX_INT64, _MAX_INT64),
    "after_ms": (-_MAX_INT64, _MAX_INT64),
    "now_ms": (-_MAX_INT64 - 1, _MAX_INT64),
    "auto_advance_ms": (-_MAX_INT64 - 1, _MAX_INT64),  # see ``check_advance``
    "start_ms": (-_MAX_INT64 - 1, _MAX_INT64),
    **dict.fromkeys(("size_ms", "advance_ms", "gap_ms", "segment_interval_ms"), (1, _MAX_INT64)),
    **dict.fromkeys(("trigger_ms", "tick_interval_ms", "purge_interval_ms"), (1, _MAX_INT64)),
    **dict.fromkeys(("max_records_per_task", "max_bytes_per_task"), (1, _MAX_INT64)),
}
#: Description of valid integers, by minimum.
_MINIMUMS = {0: "a non-negative integer", 1: "a positive integer"}
#: Names of parameters for which an empty str is valid, or is rejected by ``check_name``, which describes valid names.
_MAY_BE_EMPTY = {"bootstrap_servers", "chroot", "name", "store"}


class Rule(NamedTuple):
    """Rule for the arguments of an annotation.

    Attributes:
        accepts: function that returns whether an argument is valid, given its name and value.
        describe: function that describes the valid arguments, given the name and value of an argument. The
            description follows "must be" in messages.
        convert: function that returns a valid argument in the form that the caller uses.
    """

    accepts: Callable[[str, Any], bool]
    describe: Callable[[str, Any], str]
    convert: Callable[[Any], Any] = lambda value: value


def check_arguments(function: F) -> F:
    """Decorator: raise TopologyError if an argument does not match the annotation of its parameter."""
    return _decorate(function, TopologyError)


def check_arguments_as(error: type[ZkConsumerError]) -> Callable[[F], F]:
    """Return a decorator like ``check_arguments`` that raises ``error``."""
    return lambda function: _decorate(function, error)


def check_fields(instance: Any, error: type[ZkConsumerError] = TopologyError) -> None:
    """Check the attributes of a dataclass instance by their annotations, and convert them; see ``check_values``.

    Args:
        instance: the instance.
        error: class of the error to raise.

    Raises:
        TopologyError: an attribute does not match its annotation.
    """
    annotations = type(instance).__annotations__
    values = {name: getattr(instance, name) for name in annotations}
    for name, value in check_values(type(instance).__name__, annotations, values, error).items():
        if value is not values[name]:
            object.__setattr__(instance, name, value)


def set_fields(instance: Any, **values: object) -> None:
    """Set the attributes of an instance of a frozen dataclass, in a constructor that checked its arguments."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def check_values(
    where: str, annotations: Mapping[str, Any], values: Mapping[str, Any], error: type[ZkConsumerError] = TopologyError
) -> dict[str, Any]:
    """Check values by their annotations, and return those with annotations.

    Integers and durations in milliseconds are converted to int, numbers to float, and NumPy booleans to bool.

    Args:
        where: function or class, used in error messages.
        annotations: annotations by name.
        values: values by name; values without annotations are ignored.
        error: class of the error to raise.
    """
    checked = {}
    for name in annotations.keys() & values.keys():
        rule = find_rule(annotations[name])
        if not rule.accepts(name, values[name]):
            try:
                reject(name, values[name], rule.describe(name, values[name]))
            except ConfigurationError as problem:
                raise error(f"{where}: {problem}") from None
        checked[name] = None if values[name] is None else rule.convert(values[name])
    return checked


def find_rule(annotation: Any) -> Rule:
    """Return the rule for an annotation.

    Raises:
        KeyError: there is no rule for the annotation.
    """
    text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else str(annotation)
    plain = text.removesuffix(" | None")
    name = plain if plain in _RULES else plain.partition("[")[0]  # without type arguments
    rule = _FUNCTION if name == "Callable" else _RULES[name]
    return rule if plain == text else _or_none(rule)


def _decorate(function: F, error: type[ZkConsumerError]) -> F:
    signature = inspect.signature(function)
    name = function.__name__
    where = function.__qualname__.partition(".")[0] if name == "__init__" else f"{name}()"
    parameters = {
        name: one
        for name, one in signature.parameters.items()
        if one.annotation is not one.empty and one.kind is not one.VAR_KEYWORD
    }
    for one in parameters.values():
        find_rule(one.annotation)  # so that importing the module fails if there is no rule

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # raises the interpreter's error
        for name in parameters.keys() & bound.arguments.keys():
            one, value = parameters[name], bound.arguments[name]
            is_repeated = one.kind is one.VAR_POSITIONAL
            items = [
                check_values(where, {name: one.annotation}, {name: item}, error)[name]
                for item in (value if is_repeated else (value,))
            ]
            bound.arguments[name] = tuple(items) if is_repeated else items[0]
        return function(*bound.args, **bound.kwargs)

    return cast(F, checked)


def _or_none(rule: Rule) -> Rule:
    return Rule(
        lambda name, value: value is None or rule.accepts(name, value),
        lambda name, value: f"{rule.describe(name, value).replace(' or ', ', ')} or None",
        rule.convert,
    )


def _is_integer(name: str, value: Any) -> bool:
    minimum, maximum = _RANGES.get(name, (0, _MAX_INT64))
    number = to_integer(value)
    return number is not None and minimum <= number <= maximum


def _describe_integer(name: str, value: Any) -> str:
    minimum, maximum = _RANGES.get(name, (0, _MAX_INT64))
    number = to_integer(value)
    is_too_large = number is not None and number > maximum
    if is_too_large:
        return f"an integer between {minimum} and {maximum}"
    return _MINIMUMS.get(minimum, f"an integer of at least {minimum}")


def _is_milliseconds(name: str, value: Any) -> bool:
    return _is_integer(name, to_milliseconds(value))


def _describe_milliseconds(name: str, value: Any) -> str:
    if isinstance(value, timedelta) and to_milliseconds(value) is None:
        return "a timedelta of whole milliseconds"
    return f"{_describe_integer(name, to_milliseconds(value))} or timedelta"


def _is_duration(_name: str, value: Any) -> bool:
    seconds = to_number(value)
    return seconds is not None and seconds >= 0  # which is False for NaN


def _to_duration(value: Any) -> float:
    return min(to_number(value) or 0.0, _MAX_DURATION_S)


def _is_text(name: str, value: Any) -> bool:
    return isinstance(value, str) and (bool(value) or name in _MAY_BE_EMPTY)


#: Modules of the classes in rules. They are imported late, because most of them import this module.
_MODULES = {
    "AllowedChange": "spark.streams.changes",
    "ApplicationConfig": "topology.config",
    "Emit": "topology.dsl.window_aggregates",
    "GlobalKTable": "topology.dsl.table",
    "JoinWindows": "topology.windows",
    "KGroupedStream": "topology.dsl.grouped_stream",
    "KStream": "topology.dsl.stream",
    "KTable": "topology.dsl.table",
    "Materialized": "topology.dsl.materialized",
    "Optimization": "topology.dsl.optimizer",
    "Serde": "topology.serdes",
    "QuerySettings": "spark.streams.settings",
    "SessionWindows": "topology.windows",
    "SlidingWindows": "topology.windows",
    "StoreBuilder": "topology.stores.builder",
    "TimeWindows": "topology.windows",
    "Topology": "topology.builder",
    "UntilTimeLimit": "topology.dsl.suppress",
    "UntilWindowCloses": "topology.dsl.suppress",
}


def _load(name: str) -> type:
    loaded: type = getattr(import_module(f"zkconsumer.{_MODULES[name]}"), name)
    return loaded


def _instance(*names: str) -> Rule:
    """Return the rule for instances of classes; for an enum, the description contains its members."""

    def describe(_name: str, _value: Any) -> str:
        kind = _load(names[0])
        if issubclass(kind, enum.Enum):
            return " or ".join(f"{names[0]}.{member}" for member in kind.__members__)
        return f"a {', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else f"a {names[0]}"

    return Rule(lambda _name, value: isinstance(value, tuple(map(_load, names))), describe)


_FUNCTION = Rule(lambda _name, value: callable(value), lambda _name, _value: "a function")
#: Rule for arguments that are checked by the function that has the parameter.
_ANY = Rule(lambda _name, _value: True, lambda _name, _value: "any object")
_TEXT = Rule(_is_text, lambda _name, _value: "a non-empty str")
_MAPPING = Rule(lambda _name, value: isinstance(value, Mapping), lambda _name, _value: "a dict")
_MILLISECONDS = Rule(_is_milliseconds, _describe_milliseconds, to_milliseconds)
_ALLOWED_CHANGE = _instance("AllowedChange")
#: Rules by annotation, without ``| None``.
_RULES = {
    **dict.fromkeys(("Any", "Deserializer | Serde", "Serializer | Serde", "ProcessorSupplier"), _ANY),
    **dict.fromkeys(("str | Sequence[str]", "Iterable[StoreBuilder]"), _ANY),
    "Mapping[str, Any] | str | PathLike[str]": _ANY,
    "str | PathLike[str]": Rule(
        lambda _name, value: isinstance(value, str | PathLike) and bool(value), lambda _name, _value: "a path"
    ),
    "str": _TEXT,
    "bool": Rule(lambda _name, value: to_flag(value) is not None, lambda _name, _value: "True or False", to_flag),
    "int": Rule(_is_integer, _describe_integer, to_integer),
    **dict.fromkeys(("Milliseconds", "Duration"), _MILLISECONDS),
    "OptionalDuration": _or_none(_MILLISECONDS),
    "float": Rule(_is_duration, lambda _name, _value: "a non-negative number", _to_duration),
    "str | TopicExtractor": Rule(
        lambda name, value: _is_text(name, value) or callable(value),
        lambda _name, _value: "a non-empty str or a function",
    ),
    **dict.fromkeys(("Mapping[str, Any]", "Mapping[str, object]", "Mapping[str, str]"), _MAPPING),
    "Collection[AllowedChange]": Rule(
        lambda _name, value: isinstance(value, Collection) and all(map(_ALLOWED_CHANGE.accepts, repeat(""), value)),
        lambda name, value: f"a collection of {_ALLOWED_CHANGE.describe(name, value)}",
    ),
    "ProcessingGuarantee | str": _ANY,
    "Sequence[str]": Rule(
        lambda _name, value: isinstance(value, list | tuple) and all(isinstance(one, str) for one in value),
        lambda _name, _value: "a list of str",
    ),
    "StoreSettings": Rule(
        lambda _name, value: value is None or isinstance(value, str | _load("Materialized")),
        lambda _name, _value: "a name or a Materialized",
    ),
    "Joinable": _instance("KStream", "KTable", "GlobalKTable"),
    "Suppressed": _instance("UntilWindowCloses", "UntilTimeLimit"),
    "Windows": _instance("TimeWindows", "SlidingWindows", "SessionWindows"),
    **{name: _instance(name) for name in _MODULES},
    **dict.fromkeys(("Action", "Aggregator", "Chain", "Initializer"), _FUNCTION),
    **dict.fromkeys(("Merger", "Partitioner", "Predicate", "Reducer"), _FUNCTION),
    **dict.fromkeys(("ErrorHandler", "ExceptionHandler", "TimestampExtractor"), _FUNCTION),
    **dict.fromkeys(("ProgressListener", "StateListener"), _FUNCTION),
}
