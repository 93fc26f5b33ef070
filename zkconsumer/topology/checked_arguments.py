"""Checks of the arguments of public functions, by the annotations of their parameters.

An invalid argument is rejected by the call that takes it, not by ``StreamsBuilder.build`` or by a task.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from os import PathLike
from typing import Any, ForwardRef, NamedTuple, TypeVar, cast

from zkconsumer.argument_checks import reject
from zkconsumer.errors import ConfigurationError, TopologyError, ZkConsumerError
from zkconsumer.topology.errors import describe_integer

F = TypeVar("F", bound=Callable[..., Any])

_MAX_INT32, _MAX_INT64 = (1 << 31) - 1, (1 << 63) - 1
#: Minimum and maximum of integers, by parameter name. All others are non-negative 64-bit integers.
_RANGES = {
    "partitions": (1, _MAX_INT32),
    "now_ms": (-_MAX_INT64 - 1, _MAX_INT64),
    "auto_advance_ms": (-_MAX_INT64 - 1, _MAX_INT64),  # see ``check_advance``
    "start_ms": (-_MAX_INT64 - 1, _MAX_INT64),
}
#: Names of steps and stores. ``check_name`` rejects empty ones, and describes the valid characters.
_NAMES = {"name", "store"}


class Rule(NamedTuple):
    """Rule for the arguments of an annotation.

    Attributes:
        accepts: function that returns whether an argument is valid, given its name and value.
        describe: function that describes the valid arguments, given the name and value of an argument. The
            description follows "must be" in messages.
    """

    accepts: Callable[[str, Any], bool]
    describe: Callable[[str, Any], str]


def check_arguments(function: F) -> F:
    """Decorator: raise TopologyError if an argument does not match the annotation of its parameter."""
    return _decorate(function, TopologyError)


def check_arguments_as(error: type[ZkConsumerError]) -> Callable[[F], F]:
    """Return a decorator like ``check_arguments`` that raises ``error``."""
    return lambda function: _decorate(function, error)


def check_fields(instance: Any, error: type[ZkConsumerError] = TopologyError) -> None:
    """Check the attributes of a dataclass instance by their annotations.

    Args:
        instance: the instance.
        error: class of the error to raise.

    Raises:
        TopologyError: an attribute does not match its annotation.
    """
    annotations = type(instance).__annotations__
    values = {name: getattr(instance, name) for name in annotations}
    check_values(type(instance).__name__, annotations, values, error)


def check_values(
    where: str, annotations: Mapping[str, Any], values: Mapping[str, Any], error: type[ZkConsumerError] = TopologyError
) -> None:
    """Check values by their annotations.

    Args:
        where: function or class, used in error messages.
        annotations: annotations by name.
        values: values by name; values without annotations are ignored.
        error: class of the error to raise.
    """
    for name in annotations.keys() & values.keys():
        rule = find_rule(annotations[name])
        if not rule.accepts(name, values[name]):
            try:
                reject(name, values[name], rule.describe(name, values[name]))
            except ConfigurationError as problem:
                raise error(f"{where}: {problem}") from None


def find_rule(annotation: Any) -> Rule:
    """Return the rule for an annotation.

    Raises:
        KeyError: there is no rule for the annotation.
    """
    text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else str(annotation)
    plain = text.removesuffix(" | None")
    rule = _FUNCTION if plain.startswith("Callable[") else _RULES[plain]
    return rule if plain == text else _or_none(rule)


def _decorate(function: F, error: type[ZkConsumerError]) -> F:
    signature = inspect.signature(function)
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
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # raises the interpreter's error
        for name in parameters.keys() & bound.keys():
            one, value = parameters[name], bound[name]
            for item in value if one.kind is one.VAR_POSITIONAL else (value,):
                check_values(f"{function.__name__}()", {name: one.annotation}, {name: item}, error)
        return function(*args, **kwargs)

    return cast(F, checked)


def _or_none(rule: Rule) -> Rule:
    return Rule(
        lambda name, value: value is None or rule.accepts(name, value),
        lambda name, value: f"{rule.describe(name, value)} or None",
    )


def _is_integer(name: str, value: Any) -> bool:
    minimum, maximum = _RANGES.get(name, (0, _MAX_INT64))
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


def _describe_integer(name: str, value: Any) -> str:
    minimum, maximum = _RANGES.get(name, (0, _MAX_INT64))
    is_too_large = isinstance(value, int) and value > maximum
    return f"an integer between {minimum} and {maximum}" if is_too_large else describe_integer(minimum)


def _is_text(name: str, value: Any) -> bool:
    return isinstance(value, str) and (bool(value) or name in _NAMES)


#: Modules of the classes in rules. They are imported late, because most of them import this module.
_MODULES = {
    "ApplicationConfig": "config",
    "Emit": "dsl.window_aggregates",
    "GlobalKTable": "dsl.global_table",
    "JoinWindows": "windows",
    "KGroupedStream": "dsl.grouped_stream",
    "KStream": "dsl.stream",
    "KTable": "dsl.table",
    "Materialized": "dsl.materialized",
    "Optimization": "dsl.optimizer",
    "Serde": "serdes",
    "SessionWindows": "windows",
    "SlidingWindows": "windows",
    "StoreBuilder": "stores.builder",
    "TimeWindows": "windows",
    "Topology": "builder",
    "UntilTimeLimit": "dsl.suppress",
    "UntilWindowCloses": "dsl.suppress",
}


def _load(name: str) -> type:
    loaded: type = getattr(import_module(f"zkconsumer.topology.{_MODULES[name]}"), name)
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
#: Rules by annotation, without ``| None``.
_RULES = {
    **dict.fromkeys(("Any", "Deserializer", "Serializer", "ProcessorSupplier"), _ANY),
    **dict.fromkeys(("str | Sequence[str]", "Iterable[StoreBuilder]"), _ANY),
    "str | PathLike[str]": Rule(
        lambda _name, value: isinstance(value, str | PathLike) and bool(value), lambda _name, _value: "a path"
    ),
    "str": _TEXT,
    "bool": Rule(lambda _name, value: isinstance(value, bool), lambda _name, _value: "True or False"),
    "int": Rule(_is_integer, _describe_integer),
    "str | TopicExtractor": Rule(
        lambda name, value: _is_text(name, value) or callable(value),
        lambda _name, _value: "a non-empty str or a function",
    ),
    "Mapping[str, Any]": Rule(lambda _name, value: isinstance(value, Mapping), lambda _name, _value: "a dict"),
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
    "TimestampExtractor": _FUNCTION,
}
