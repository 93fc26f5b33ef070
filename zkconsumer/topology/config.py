"""Settings of a topology application."""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.checked_arguments import check_fields
from zkconsumer.durations import Duration, default_ms
from zkconsumer.errors import ConfigurationError
from zkconsumer.topology import handlers, serdes, timestamps
from zkconsumer.topology.handlers import ErrorHandler
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.pages import PageLimits
from zkconsumer.topology.timestamps import TimestampExtractor

#: Default value of ``statestore_cache_max_bytes``.
DEFAULT_CACHE_BYTES = 10 * 1024 * 1024

#: Value of ``max_task_idle_ms`` that disables waiting for empty partitions.
IDLE_DISABLED = -1


@dataclass(frozen=True, kw_only=True)
class ApplicationConfig:
    """Settings of a topology application.

    Durations are numbers of milliseconds or ``timedelta`` objects, which are converted.

    Attributes:
        application_id: name of the application. Default ``application``.
        key_serde: key serde of sources, sinks and stores that do not set their own. Default ``serdes.BYTES``.
        value_serde: value serde of sources, sinks and stores that do not set their own. Default ``serdes.BYTES``.
        timestamp_extractor: function that returns a record's timestamp; see ``zkconsumer.topology.timestamps``. Default
            ``timestamps.fail_on_invalid``.
        max_task_idle_ms: maximum time to wait for data on empty partitions without lag, in milliseconds, so that
            records are processed in timestamp order. Default 0: wait only for partitions whose lag is positive or
            unknown. -1: never wait.
        deserialization_handler: handler for records that cannot be deserialized. Default ``handlers.fail``.
        processing_handler: handler for failures of processors, punctuators, topic extractors and partitioners, and for
            records for which ``production_handler`` returned FAIL. Default ``handlers.fail``.
        production_handler: handler for records that cannot be serialized. Default ``handlers.fail``.
        page_bytes: maximum size of a store page with several entries, in bytes. Larger pages result in fewer reads and
            writes, but a commit writes every changed page as a whole. Default None: 65,536 on Spark, otherwise 16,384.
            Minimum 1,024.
        page_memory_bytes: maximum encoded size of the unchanged pages that a store keeps in memory, in bytes. Default
            67,108,864 (64 MiB).
        statestore_cache_max_bytes: maximum total size of a task's record caches, in bytes. Tasks with
            the same ``TaskRuntime.cache`` share its limit instead. Default 10,485,760 (10 MiB); 0 disables caching.
        emit_interval_ms: minimum wall-clock time between two checks for closed windows, in milliseconds. It applies to
            stream-stream joins and to ``Emit.ON_CLOSE``. Default 1,000; ``TopologyTestDriver`` uses 0.
        quarantine_topic: topic for source records if a handler returns ``ErrorResponse.QUARANTINE``. Default None.

    Raises:
        ConfigurationError: a setting has the wrong type, is out of range, or is required but not set.
    """

    application_id: str = "application"
    key_serde: Serde = serdes.BYTES
    value_serde: Serde = serdes.BYTES
    timestamp_extractor: TimestampExtractor = timestamps.fail_on_invalid
    max_task_idle_ms: Duration = default_ms(0)
    deserialization_handler: ErrorHandler = handlers.fail
    processing_handler: ErrorHandler = handlers.fail
    production_handler: ErrorHandler = handlers.fail
    page_bytes: int | None = None
    page_memory_bytes: int = PageLimits().memory_bytes
    statestore_cache_max_bytes: int = DEFAULT_CACHE_BYTES
    emit_interval_ms: Duration = default_ms(1_000)
    quarantine_topic: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, ConfigurationError)
        uses_quarantine = handlers.quarantine in (
            self.deserialization_handler,
            self.processing_handler,
            self.production_handler,
        )
        if uses_quarantine and self.quarantine_topic is None:
            raise ConfigurationError("quarantine_topic must be set if handlers.quarantine is used")

    @property
    def page_limits(self) -> PageLimits:
        """Page size and memory limits of each store."""
        default = PageLimits().page_bytes
        return PageLimits(default if self.page_bytes is None else self.page_bytes, self.page_memory_bytes)
