"""Settings of an application that runs a topology."""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.errors import ConfigurationError
from zkconsumer.topology import handlers, serdes, timestamps
from zkconsumer.topology.errors import describe_integer
from zkconsumer.topology.handlers import ErrorHandler
from zkconsumer.topology.queues import IDLE_DISABLED
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.pages import PageLimits
from zkconsumer.topology.timestamps import TimestampExtractor

#: Default of ``statestore_cache_max_bytes``.
DEFAULT_CACHE_BYTES = 10 * 1024 * 1024

#: Settings that are numbers, and their minimums.
_MINIMUMS = (
    ("page_bytes", 1_024),
    ("page_memory_bytes", 0),
    ("statestore_cache_max_bytes", 0),
    ("emit_interval_ms", 0),
)


@dataclass(frozen=True, kw_only=True)
class ApplicationConfig:
    """Settings of an application. Sources and sinks without their own (de)serializers use these serdes.

    Attributes:
        application_id: name of the application. Default ``application``.
        key_serde: for keys. Default ``serdes.BYTES``.
        value_serde: for values. Default ``serdes.BYTES``.
        timestamp_extractor: returns the timestamps of records; see ``zkconsumer.topology.timestamps``.
        max_task_idle_ms: maximum time to wait for records of empty partitions without a lag, in milliseconds, so that
            records are processed in the order of their timestamps. Default 0: wait only for partitions with a lag, or
            with an unknown lag. -1: never wait.
        deserialization_handler: called if a record cannot be deserialized. Default ``handlers.fail``.
        processing_handler: called if a processor, punctuator, topic extractor or partitioner fails, and for errors for
            which ``production_handler`` returned FAIL. Default ``handlers.fail``.
        production_handler: called if a record cannot be serialized. Default ``handlers.fail``.
        page_bytes: maximum bytes of a page of a persistent store; larger pages need fewer reads and writes, but each
            changed page is written at a commit. Default 16,384; at least 1,024.
        page_memory_bytes: maximum encoded bytes of the unchanged pages that a store keeps in memory. Default 64 MiB.
        statestore_cache_max_bytes: maximum bytes of the record caches of a task. Tasks with a ``TaskRuntime.cache`` use
            the limit of that cache instead, and share it. Default 10,485,760 (10 MiB); 0 disables the caches.
        emit_interval_ms: minimum milliseconds of wall-clock time between two searches for closed windows, by joins of
            streams and with ``Emit.ON_CLOSE``. Default 1,000; ``TopologyTestDriver`` uses 0.
        quarantine_topic: topic to which ``ErrorResponse.QUARANTINE`` sends records. Default None.

    Raises:
        ConfigurationError: a value is invalid.
    """

    application_id: str = "application"
    key_serde: Serde = serdes.BYTES
    value_serde: Serde = serdes.BYTES
    timestamp_extractor: TimestampExtractor = timestamps.fail_on_invalid
    max_task_idle_ms: int = 0
    deserialization_handler: ErrorHandler = handlers.fail
    processing_handler: ErrorHandler = handlers.fail
    production_handler: ErrorHandler = handlers.fail
    page_bytes: int = PageLimits().page_bytes
    page_memory_bytes: int = PageLimits().memory_bytes
    statestore_cache_max_bytes: int = DEFAULT_CACHE_BYTES
    emit_interval_ms: int = 1_000
    quarantine_topic: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.max_task_idle_ms, int) or self.max_task_idle_ms < IDLE_DISABLED:
            raise ConfigurationError(
                f"max_task_idle_ms must be {describe_integer(IDLE_DISABLED)}, got {self.max_task_idle_ms!r}"
            )
        for name, minimum in _MINIMUMS:
            value = getattr(self, name)
            if not isinstance(value, int) or value < minimum:
                raise ConfigurationError(f"{name} must be {describe_integer(minimum)}, got {value!r}")
        for name in ("key_serde", "value_serde"):
            if not isinstance(getattr(self, name), Serde):
                raise ConfigurationError(f"{name} must be a Serde, got {getattr(self, name)!r}")
        for name in ("timestamp_extractor", "deserialization_handler", "processing_handler", "production_handler"):
            if not callable(getattr(self, name)):
                raise ConfigurationError(f"{name} must be a function, got {getattr(self, name)!r}")
        uses_quarantine = handlers.quarantine in (
            self.deserialization_handler,
            self.processing_handler,
            self.production_handler,
        )
        if uses_quarantine and self.quarantine_topic is None:
            raise ConfigurationError("handlers.quarantine requires a topic: set quarantine_topic")
