"""A source that emits one row per task and trigger, so that punctuators also run in tasks without records.

With global stores, a tick also contains the end offsets of the global store topics, and the current brokers.

See docs/decisions/31-own-tick-source.rst.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from zkconsumer.errors import RetriableError, ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.log_ends import LATEST
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.spark.streams.markers import GlobalTick, TopicEnds
from zkconsumer.spark.streams.packing import COLUMNS

if TYPE_CHECKING:
    from zkconsumer.broker.log_offsets import LogOffsets

#: Format name of the tick source.
FORMAT = "zkconsumer-ticks"

Tick = dict[str, Any]


class TickPartition(InputPartition):
    """The tick of a batch.

    Attributes:
        time_ms: time of the tick, in milliseconds since the epoch.
        contents: end offsets of the global store topics, and brokers; see ``markers.GlobalTick.encode``. None without
            global stores.
    """

    def __init__(self, time_ms: int, contents: str | None) -> None:
        self.time_ms = time_ms
        self.contents = None if contents is None else contents.encode()


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads ticks. The offset contains the time and end offsets of the tick, so a repeated batch has the same tick.

    The time of ticks increases even if the clock goes back, for example on another host. While the clock is behind the
    last tick, there is still a tick per interval, with new end offsets, but its time is only a millisecond higher. If
    the clock is behind by an interval or more, the offset also contains the difference, as ``behind``.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._keys: list[int] = json.loads(options["keys"])
        self._interval_ms = int(options["intervalMs"])
        self._global = json.loads(options.get("global", "null"))
        self._is_available_now = False
        #: Time of the last new tick (``time.monotonic``); None before the first one, because there is a tick each time
        #: a query starts: new tasks need the end offsets.
        self._last_at: float | None = None
        self._is_behind = False
        self._opened_logs: LogOffsets | None = None
        self._log = get_logger("zkconsumer.spark")

    def initialOffset(self) -> Tick:
        """Return the offset before the first tick."""
        return {"time": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """Stop the query after one tick."""
        self._is_available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return an unlimited read limit."""
        return ReadAllAvailable()

    def latestOffset(self, start: Tick, limit: ReadLimit) -> Tick:  # noqa: ARG002
        """Return the current tick, or ``start`` if there is no new tick."""
        if not self._interval_ms or (self._is_available_now and self._last_at is not None):
            return start
        now_ms = _read_clock_ms()
        tick_ms, behind_ms = now_ms // self._interval_ms * self._interval_ms, start["time"] - now_ms
        if not self._is_due(tick_ms, start["time"]):
            return start
        tick: Tick = {"time": max(tick_ms, start["time"] + 1)}
        if self._global is not None:
            tick["ends"] = self._find_ends(start.get("ends"))
        self._last_at = time.monotonic()
        if behind_ms >= self._interval_ms:
            tick["behind"] = behind_ms
            if not self._is_behind:
                self._log.warning("clock_went_back", timestamp=now_ms, batch_time_ms=start["time"])
        self._is_behind = behind_ms >= self._interval_ms
        return tick

    def _is_due(self, tick_ms: int, last_ms: int) -> bool:
        if self._last_at is None or tick_ms > last_ms:
            return True
        # If the clock is not set back, the next tick is due within two intervals after the last one was planned.
        intervals = 1 if tick_ms < last_ms else 2
        return time.monotonic() - self._last_at >= intervals * self._interval_ms / 1_000

    def _find_ends(self, before: str | None) -> str:
        """Return the end offsets of the global store topics; if the brokers do not respond, the previous end offsets.

        Raises:
            RetriableError: the brokers did not respond, and no offsets are known yet.
        """
        partitions = [TopicPartition(*partition) for partition in self._global["partitions"]]
        try:
            ends = self._logs.offsets(partitions, LATEST)
        except RetriableError as error:
            if before is None:
                raise
            self._log.warning("global_offsets_not_found", error=str(error))
            return before
        known = {} if before is None else TopicEnds.decode(before).topic_ids
        return TopicEnds(ends, {**known, **self._find_topic_ids()}).encode()

    def _find_topic_ids(self) -> dict[str, str]:
        """Return the known ids of the global store topics; empty if no broker responds."""
        try:
            topics = self._logs.topics.look_up(topic for topic, _ in self._global["partitions"])
        except ZkConsumerError as error:
            self._log.warning("global_offsets_not_found", error=str(error))
            return {}
        return {topic.name: topic.topic_id for topic in topics.values() if topic.topic_id}

    @property
    def _logs(self) -> LogOffsets:
        """The client for end offsets and topic ids. It is kept, because it knows the brokers of the last response."""
        # Imported here, because tasks import this module, but do not send requests.
        from zkconsumer.broker.log_offsets import LogOffsets
        from zkconsumer.config import ConsumerConfig

        if self._opened_logs is None:
            brokers = [Endpoint(host, port) for host, port in self._global["brokers"]]
            config = ConsumerConfig.from_dict(self._global["properties"])
            self._opened_logs = LogOffsets.from_config(lambda: brokers, config)
        return self._opened_logs

    def partitions(self, start: Tick, end: Tick) -> list[InputPartition]:
        """Return the tick of a batch, if the batch has one."""
        if end["time"] <= start["time"]:
            return []
        contents = None
        if "ends" in end:
            contents = GlobalTick(TopicEnds.decode(end["ends"]), self._logs.brokers()).encode()
        return [TickPartition(end["time"], contents)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield one row for each task."""
        if isinstance(partition, TickPartition):
            for key in self._keys:
                yield key, None, None, partition.time_ms, None, partition.contents, None

    def stop(self) -> None:
        """Close the connections."""
        if self._opened_logs is not None:
            self._opened_logs.close()


def _read_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class TickSource(DataSource):
    """The format ``zkconsumer-ticks``.

    Its options are ``keys`` (JSON) and ``intervalMs`` (0 for no ticks). With global stores, the option ``global`` is
    JSON with ``properties``, ``brokers`` (host and port) and ``partitions`` (topic and number).
    """

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of the ticks."""
        return COLUMNS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002
        """Return the reader of a streaming query."""
        return TickReader(self.options)
