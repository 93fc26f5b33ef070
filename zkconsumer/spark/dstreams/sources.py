"""Sources, which plan the offset ranges of the batches of ``KafkaUtils`` DStreams.

A source plans each batch once, when its ranges are first requested, and keeps the plan in a ledger. Spark's checkpoint
contains the source and the ledger, so a batch that is re-run after a crash has the same ranges. Connections are not
part of the checkpoint. If a batch is not run, its plan moves to a later batch time.

Source: Spark 2.4 DirectKafkaInputDStream, KafkaReceiver, ReliableKafkaReceiver.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from pyspark import SparkContext

from zkconsumer.config import ConsumerConfig
from zkconsumer.log import get_logger
from zkconsumer.log_ends import EARLIEST, LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.retry import retrying
from zkconsumer.spark.dstreams.batches import find_batch
from zkconsumer.spark.dstreams.clients import BROKER_TIMEOUT_S, BrokerClient, clients
from zkconsumer.spark.dstreams.ledger import Ledger
from zkconsumer.spark.dstreams.rates import RateLimits
from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.spark.offset import INITIAL, Ranges, from_offset, total
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.factory import create_planner
from zkconsumer.spark.planning.planner import Planner
from zkconsumer.spark.planning.splitting import tasks as tasks_of

#: Numbers of the sources, in the order of their creation.
_numbers = itertools.count()


class Source:
    """Plans batches in Spark's job generator thread. The listener bus thread marks them as completed or failed.

    Checkpoints contain the attribute names, so attributes must not be renamed.

    Args:
        seconds: batch interval in seconds.

    Attributes:
        key: unique id of the source in this process; a recovered source has a new key.
        seconds: batch interval in seconds.
        has_failed: whether planning stopped after a failed batch, until a restart. Not stored in checkpoints.
    """

    has_failed = False

    #: Spark property that limits the rate, in records per second.
    _RATE_PROPERTY: ClassVar[str]

    def __init__(self, seconds: float) -> None:
        self.key, self.seconds = uuid.uuid4().hex, seconds
        self._ledger = Ledger()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("rate_limits", "has_failed")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, key=uuid.uuid4().hex)

    @cached_property
    def rate_limits(self) -> RateLimits:
        """The rate limits, which determine the batch size."""
        sc = SparkContext._active_spark_context
        assert sc is not None
        return RateLimits(sc, self.seconds, self._RATE_PROPERTY)

    def ranges_at(self, time_ms: int) -> Ranges:
        """Return the ranges for a batch time. The first call plans them, or returns no ranges if ``has_failed`` is set.

        A new batch time takes over the ranges of a batch that was not run, if there is one.

        Args:
            time_ms: batch time in milliseconds since the epoch.
        """
        if time_ms not in self._ledger and not self.has_failed:
            batch_ms = find_batch(time_ms)
            if not self._ledger.take_over(time_ms, batch_ms):
                self._ledger.add(time_ms, self._plan(), batch_ms)
        return self.planned_ranges(time_ms)

    def planned_ranges(self, time_ms: int) -> Ranges:
        """Return the ranges for a batch time; empty if it is not in the ledger."""
        return dict(self._ledger.get(time_ms) or {})

    def count_records(self, batch_ms: int) -> int:
        """Return the number of offsets in the ranges that a batch reads."""
        return sum(total(self.planned_ranges(time_ms)) for time_ms in self._ledger.times(batch_ms))

    def uncompleted(self) -> set[int]:
        """Return the times, in milliseconds, of batches that are neither rescheduled nor known to be completed."""
        return self._ledger.uncompleted()

    def submit(self, batch_ms: int) -> None:
        """Record that Spark submitted the jobs of a batch."""
        self._ledger.submit(batch_ms)

    def complete(self, batches_ms: Iterable[int]) -> None:
        """Mark batches as completed."""
        self._ledger.complete(batches_ms)

    def fail(self, batch_ms: int, reason: str) -> None:
        """Handle a failed batch. Spark re-runs it only after a recovery."""
        raise NotImplementedError

    def settle_unknown(self, batch_ms: int) -> None:
        """Complete or reschedule an earlier batch whose jobs Spark has not submitted in this process.

        If the jobs were submitted before the checkpoint was written, they had finished by then; otherwise, Spark would
        have re-run the batch. Such a batch is completed, and so is a batch without records. Any other batch is
        rescheduled, so that a later batch reads its records.
        """
        if self._ledger.was_submitted_before_recovery(batch_ms) or not self.count_records(batch_ms):
            self.complete({batch_ms})
            return
        self._ledger.reschedule(batch_ms)
        get_logger("zkconsumer.spark").warning("batch_rescheduled", batch_time_ms=batch_ms)

    def forget_before(self, time_ms: int) -> None:
        """Remove the plans before ``time_ms``, up to the first uncommittable one, to keep checkpoints small."""
        self._ledger.forget_before(time_ms)

    def tasks(self, ranges: Ranges) -> list[FetchTask]:
        """Return the tasks of a batch."""
        raise NotImplementedError

    def mark_used(self) -> None:
        """Record that an output operation or another stream uses the source."""

    def siblings(self) -> Sequence[Source]:
        """Return the sources that must be open before this source plans a batch, including this source."""
        return [self]

    def close(self) -> None:
        """Close the connections in this process."""
        clients.close(self.key)

    def _plan(self) -> Any:
        """Plan the next batch and return its ledger entry."""
        raise NotImplementedError


class DirectSource(Source):
    """Reads a fixed set of partitions without a consumer group or ZooKeeper.

    Args:
        seconds: batch interval in seconds.
        params: the user's ``kafkaParams``.
        topics: topics to read if ``positions`` is None.
        positions: starting offsets of the partitions to read; None to read all partitions that exist when the stream is
            created, starting as configured by ``auto.offset.reset``.
    """

    _RATE_PROPERTY = "spark.streaming.kafka.maxRatePerPartition"

    def __init__(
        self,
        seconds: float,
        params: Mapping[str, str],
        topics: list[str],
        positions: Mapping[TopicPartition, int] | None,
    ) -> None:
        super().__init__(seconds)
        self._params = dict(params)
        try:
            client = self._client()
            self._positions = self._starting_positions(client, topics) if positions is None else dict(positions)
        except BaseException:
            self.close()
            raise
        offsets = {str(p): offset for p, offset in sorted(self._positions.items())}
        get_logger("zkconsumer.spark").info("stream_created", offsets=offsets)

    def _starting_positions(self, client: BrokerClient, topics: list[str]) -> dict[TopicPartition, int]:
        reset = str(self._params.get("auto.offset.reset", "largest")).lower()
        timestamp = EARLIEST if reset in ("smallest", "earliest") else LATEST
        return client.logs.offsets(client.partitions(topics), timestamp)

    def tasks(self, ranges: Ranges) -> list[FetchTask]:
        """Return one task for each partition, even if its range is empty."""
        return self._client().tasks(ranges)

    def fail(self, batch_ms: int, reason: str) -> None:
        """Continue with the next batch, as in Spark 2.4.

        The failed batch is retained for as long as completed batches.
        """
        remedy = "restart the application from its checkpoint soon to re-run the batch"
        get_logger("zkconsumer.spark").error("batch_failed", batch_time_ms=batch_ms, error=reason, remedy=remedy)
        self.complete({batch_ms})

    def _plan(self) -> Ranges:
        client = self._client()
        ends = retrying(BROKER_TIMEOUT_S)(lambda: client.logs.offsets(self._positions, LATEST))
        lags = {p: max(0, ends[p] - position) for p, position in self._positions.items()}
        counts = self.rate_limits.partition_limits(lags)
        ranges = {p: (position, position + counts.get(p, 0)) for p, position in self._positions.items()}
        self._positions = {p: until for p, (_, until) in ranges.items()}
        return ranges

    def _client(self) -> BrokerClient:
        return clients.get(self.key, lambda: BrokerClient(self._params))


#: The sources in this process that an output operation uses, and that are not closed, by key.
_used: dict[str, GroupSource] = {}


class GroupSource(Source):
    """Reads the partitions that are assigned to a consumer group member.

    Ledger entries are batch offsets (see ``zkconsumer.spark.offset``), or None for batches without new records.

    All sources of a streaming context join their groups before the first of them plans a batch. Otherwise, the first
    source would plan a batch with all partitions, and the next source would wait for partitions that are only released
    after this batch, while Spark generates the jobs of the batch. They join in the order of their creation, so the
    ``range`` strategy assigns the same partitions to them after a recovery.

    Args:
        seconds: batch interval in seconds.
        topics: number of threads per topic.
        context: unique id of the streaming context.
    """

    _RATE_PROPERTY = "spark.streaming.receiver.maxRate"

    def __init__(self, seconds: float, config: ConsumerConfig, topics: Mapping[str, int], context: str) -> None:
        super().__init__(seconds)
        self._context, self._number = context, next(_numbers)
        self._config = config
        self._topics = dict(topics)
        self._last: dict[str, Any] = INITIAL
        get_logger("zkconsumer.spark").info("stream_created", group=config.group_id, topics=sorted(topics))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.mark_used()  # checkpoints contain only the streams on which an output operation depends

    def mark_used(self) -> None:
        """Make the source join its group together with the other sources of the context."""
        _used[self.key] = self

    def siblings(self) -> Sequence[Source]:
        """Return the open sources of the context that are used, and this source, in the order of their creation."""
        others = [one for one in list(_used.values()) if one._context == self._context and one is not self]
        return sorted([self, *others], key=lambda source: source._number)

    def close(self) -> None:
        """Leave the group."""
        _used.pop(self.key, None)
        super().close()

    def planned_ranges(self, time_ms: int) -> Ranges:
        """Return the ranges for a batch time; empty if it is not in the ledger."""
        end = self._ledger.get(time_ms)
        return from_offset(end) if end is not None else {}

    def complete(self, batches_ms: Iterable[int]) -> None:
        """Mark batches as completed, and commit the offsets of all batches that became committable."""
        for end in self._ledger.complete(batches_ms):
            if end is not None:
                self._planner().finish_batch(end)

    def fail(self, batch_ms: int, reason: str) -> None:
        """Stop planning, unless the batch had no records.

        Later batches cannot be committed, because a restarted application would then skip the failed batch. They would
        all be read again, and each of them would enlarge the checkpoint.
        """
        if not self.count_records(batch_ms):
            self.complete({batch_ms})
            return
        self.has_failed = True
        remedy = "restart the application; until then, the stream reads no records and commits no later offsets"
        get_logger("zkconsumer.spark", group=self._config.group_id).error(
            "batch_failed", batch_time_ms=batch_ms, error=reason, remedy=remedy
        )

    def tasks(self, ranges: Ranges) -> list[FetchTask]:
        """Return the tasks of a batch; see ``Planner.find_brokers`` for the errors."""
        planner = self._planner()
        cores = SparkContext.getOrCreate().defaultParallelism
        return list(tasks_of(self._options(), ranges, *planner.find_brokers(ranges), cores))

    def _plan(self) -> dict[str, Any] | None:
        planner = self._planner()
        limit = self.rate_limits.batch_limit() or self._options().limits.max_offsets
        end = planner.plan(self._last, limit)
        new = None if end is self._last else end
        self._last = end
        return new

    def _options(self) -> SourceOptions:
        options = SourceOptions.parse(
            {"zookeeper.connect": "none", "group.id": "none", "subscribe": ",".join(self._topics)}
        )
        return options.for_consumer(self._config, self._topics)

    def _planner(self) -> Planner:
        """Return the planner. The first call of a source of the context joins the groups."""
        for source in self.siblings():
            assert isinstance(source, GroupSource)
            clients.get(source.key, source._start_planner)
        return clients.get(self.key, self._start_planner)

    def _start_planner(self) -> Planner:
        planner = create_planner(self._options(), self._last, application=os.getpid())
        try:
            planner.start()
        except BaseException:
            planner.close()
            raise
        return planner
