"""Structured logging, and the default handler, which shows warnings in processes that have not configured logging."""

from __future__ import annotations

import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, Unpack

#: Name of kazoo's logger, which logs a warning for each lost connection and each failed connection attempt.
KAZOO = "zkconsumer.zookeeper.kazoo"

#: Minimum seconds before the default handler shows the same event again.
_REPEAT_INTERVAL = 60.0

#: Maximum number of different errors for which the default handler shows the same event within ``_REPEAT_INTERVAL``.
_MAX_ERRORS = 10

#: Maximum number of events that the default handler remembers to detect repeated events.
_MAX_REMEMBERED = 1000

#: Keys whose values identify an event, so that repeated events are detected.
_DISTINGUISHING = (
    *("event", "group", "consumer_id", "query", "topic", "topics", "partition"),
    *("path", "endpoint", "property", "method", "members"),
)

#: Keys that contain the error of an event.
_ERRORS = ("error", "exception", "reason")


class EventValues(TypedDict, total=False):
    """Keys of log events; each key has the same meaning and type in all events.

    ``docs/log-events.rst`` describes them.
    """

    attempt: int
    auto_offset_reset: str
    batch_time_ms: int
    byte_count: int
    committed_offset: int
    consumed_offset: int
    consumer_id: str
    endpoint: str
    error: str
    error_code: int
    exc_info: bool | BaseException
    executable: str
    fetch_size: int
    group: str
    idle: list[str]
    key: bytes | None
    kind: str
    max_event_time_ms: int
    members: list[str]
    membership: str
    method: str
    next_offset: int
    node: str
    offset: int
    offsets: Mapping[str, object]
    owned_count: int
    partition: int
    partition_count: int
    partitions: list[str]
    path: str
    property: str
    query: str
    ranges: Mapping[str, list[int]]
    reason: str
    reasons: Mapping[str, str]
    records: int
    records_by_partition: Mapping[str, int]
    remedy: str
    retriable: bool
    session_id: str
    slowest_partition: str
    state: str
    store: str
    task: str
    timeout_s: float
    timestamp: int
    topic: str
    topics: list[str]
    unread_count: int
    value: object
    windows: int


class Logger(Protocol):
    """Event logger; ``event`` is a constant name in snake case."""

    def debug(self, event: str, **values: Unpack[EventValues]) -> object:
        """Log an event at level DEBUG."""

    def info(self, event: str, **values: Unpack[EventValues]) -> object:
        """Log an event at level INFO."""

    def warning(self, event: str, **values: Unpack[EventValues]) -> object:
        """Log an event at level WARNING."""

    def error(self, event: str, **values: Unpack[EventValues]) -> object:
        """Log an event at level ERROR."""

    def bind(self, **context: Unpack[EventValues]) -> Logger:
        """Return a logger that adds ``context`` to every event."""


class _Rendered(str):
    """The rendered message of an event.

    Attributes:
        identity: hash of the values that identify the event.
        error: hash of the event's error.
    """

    __slots__ = ("error", "identity")
    identity: int
    error: int


@dataclass(slots=True)
class _Shown:
    """An event shown once per error in ``errors``, first at ``since``, and otherwise suppressed ``count`` times."""

    since: float
    errors: set[int]
    count: int = 0


class DefaultHandler(logging.Handler):
    """Writes events at level WARNING or above to standard error unless another handler receives them.

    This is checked for each event, so an application may configure logging before or after it imports this package. A
    repeated event is shown if its error is new, and otherwise at most once a minute, with a repeat count.

    See docs/decisions/23-warnings-on-standard-error.rst.

    Args:
        clock: monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._shown: OrderedDict[int, _Shown] = OrderedDict()  # event identity -> event, ordered by ``since``

    def emit(self, record: logging.LogRecord) -> None:
        """Write an event unless another handler receives it or it repeats a recent event.

        kazoo's events below level ERROR are written only if the handler's level is DEBUG.
        """
        if self._is_noise(record) or self.is_superseded(record.name):
            return
        repeated = self._count(record)
        if repeated is None or sys.stderr is None:
            return
        try:
            suffix = f" (repeated {repeated} times)" if repeated else ""
            sys.stderr.write(self.format(record) + suffix + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)

    def is_superseded(self, name: str) -> bool:
        """Return whether another handler receives the events of logger ``name``."""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False

    def _is_noise(self, record: logging.LogRecord) -> bool:
        return record.name == KAZOO and record.levelno < logging.ERROR and self.level > logging.DEBUG

    def _count(self, record: logging.LogRecord) -> int | None:
        """Return the number of repetitions to show with the event, or None to suppress the event."""
        if record.levelno < logging.WARNING:
            return 0
        rendered = record.msg if isinstance(record.msg, _Rendered) else None
        identity = hash((record.name, record.levelno, rendered.identity if rendered else record.getMessage()))
        error = rendered.error if rendered else 0
        now, shown = self._clock(), self._shown.get(identity)
        if shown is not None and now - shown.since < _REPEAT_INTERVAL:
            if error not in shown.errors and len(shown.errors) < _MAX_ERRORS:
                shown.errors.add(error)
                return 0
            shown.count += 1
            return None
        self._shown[identity] = _Shown(now, {error})
        self._shown.move_to_end(identity)
        if len(self._shown) > _MAX_REMEMBERED:
            self._shown.popitem(last=False)
        return shown.count if shown is not None else 0


_default_handler = DefaultHandler()
logging.getLogger("zkconsumer").addHandler(_default_handler)


def show_level(level: int) -> None:
    """Show events of ``level`` and above on standard error, unless logging has been configured."""
    if not _default_handler.is_superseded("zkconsumer"):
        logging.getLogger("zkconsumer").setLevel(level)
        _default_handler.setLevel(level)


def get_logger(name: str, **context: Unpack[EventValues]) -> Logger:
    """Return a logger with ``context`` bound.

    It uses structlog if the application has configured structlog before the first event, and the standard library's
    logger ``name`` otherwise. Call it in constructors, not per event.
    """
    return _EventLogger(name, context)


class _EventLogger:
    """A logger that imports structlog when it first logs an event: most Python processes of Spark log none.

    Args:
        name: name of the standard library's logger.
        context: values of every event.
    """

    __slots__ = ("_context", "_logger", "_name")

    def __init__(self, name: str, context: EventValues) -> None:
        self._name, self._context = name, context
        self._logger: Any = None

    def debug(self, event: str, **values: Unpack[EventValues]) -> object:
        return self._log(logging.DEBUG, "debug", event, values)

    def info(self, event: str, **values: Unpack[EventValues]) -> object:
        return self._log(logging.INFO, "info", event, values)

    def warning(self, event: str, **values: Unpack[EventValues]) -> object:
        return self._log(logging.WARNING, "warning", event, values)

    def error(self, event: str, **values: Unpack[EventValues]) -> object:
        return self._log(logging.ERROR, "error", event, values)

    def bind(self, **context: Unpack[EventValues]) -> Logger:
        return _EventLogger(self._name, {**self._context, **context})

    def _log(self, level: int, method: str, event: str, values: EventValues) -> object:
        if self._logger is None:
            # Only an application that has imported structlog can have configured it to receive events of all levels.
            if "structlog" not in sys.modules and not logging.getLogger(self._name).isEnabledFor(level):
                return None
            self._logger = _create_logger(self._name).bind(**self._context)
        return getattr(self._logger, method)(event, **values)


def _create_logger(name: str) -> Any:
    import structlog

    if structlog.is_configured():
        return structlog.get_logger(name)
    render_text = structlog.processors.KeyValueRenderer(key_order=["event"])

    def render(logger: Any, method: str, values: dict[str, Any]) -> _Rendered:
        rendered = _Rendered(render_text(logger, method, values))
        rendered.identity, rendered.error = (
            hash(tuple(str(values.get(key)) for key in keys)) for keys in (_DISTINGUISHING, _ERRORS)
        )
        return rendered

    processors: list[Any] = [structlog.stdlib.filter_by_level, structlog.processors.format_exc_info, render]
    return structlog.wrap_logger(
        logging.getLogger(name), processors=processors, wrapper_class=structlog.stdlib.BoundLogger
    )
