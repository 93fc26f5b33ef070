"""ConsumerFetcherThread: fetches records from one broker into partition queues.

It is used by unbounded streams, and by Spark tasks, which read up to given stop offsets.

Until it is closed, the thread repeats four steps:

- ``build_fetch_request`` selects the partitions whose queues have room, or none if it is better to wait;
- ``fetch`` sends the request with ``FetchRequests``, after unknown offsets were looked up;
- ``process_partition_data`` puts the records of each partition into its queue, or passes errors to
  ``PartitionErrors``;
- ``handle_partitions_with_errors`` returns partitions that could not be fetched to the leader finder.

Source: Kafka 1.1 kafka.server.AbstractFetcherThread, kafka.consumer.ConsumerFetcherThread. Deliberate differences: a
partition whose queue is full is left out of the request instead of blocking the thread, and no lock is held during a
request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Sequence

from zkconsumer.broker import protocol
from zkconsumer.broker.error_codes import error_name
from zkconsumer.errors import ClosedError, RetriableError, ZkConsumerError
from zkconsumer.fetcher.batch_headers import DamagedBatch, make_checked_chunk
from zkconsumer.fetcher.chunk import Chunk, PositionChanged
from zkconsumer.fetcher.damage import DamageKind
from zkconsumer.fetcher.fetch_settings import FATAL_ERROR_BACKOFF_S, FetchSettings
from zkconsumer.fetcher.partition import MIN_FETCH_BYTES, RESET_TIMESTAMPS, PartitionTopicInfo
from zkconsumer.fetcher.partition_errors import PartitionErrors
from zkconsumer.fetcher.partition_map import PartitionMap
from zkconsumer.fetcher.queues import ByteBudget, PartitionQueue, StreamQueue
from zkconsumer.fetcher.requests import FetchAnswer, FetchRequests
from zkconsumer.log import Logger, get_logger
from zkconsumer.log_ends import LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.threads import OwnedThread, WakeUp

#: Initial milliseconds that the broker waits for data if a partition is left out of the request because its queue is
#: full. Once the queue has room again, the next fetch of the partition is delayed by up to this time. The time doubles,
#: up to ``fetch.wait.max.ms``, while the queue remains full.
_MIN_WAIT_WITH_FULL_QUEUE_MS = 5

#: Maximum seconds that ``close`` waits for the thread to terminate.
_JOIN_TIMEOUT_S = 5.0


class _LogEndUnknownError(Exception):
    """The broker did not return the log end offset of a partition."""


class ConsumerFetcherThread:
    """Fetches from one broker: one thread, one connection, one request at a time.

    Other threads call ``add_partitions``, ``remove_partitions``, ``remove_infos`` and ``close``.

    Args:
        name: thread name.
        requests: requests to the broker; closed by this thread.
        settings: fetch settings.
        budget: byte limit shared by all fetchers and queues of a consumer or task.
        on_error: function that is called with partitions that could not be fetched; their leaders must be looked up
            again.
        on_failure: function that is called with a partition and the error to raise to its reader.

    Attributes:
        endpoint: the broker.
        has_ended: whether an unexpected error terminated the thread.
    """

    def __init__(
        self,
        name: str,
        requests: FetchRequests,
        settings: FetchSettings,
        budget: ByteBudget,
        on_error: Callable[[Iterable[PartitionTopicInfo]], None],
        on_failure: Callable[[PartitionTopicInfo, ZkConsumerError], None],
    ) -> None:
        self.endpoint = requests.endpoint
        self.has_ended = False
        self._requests = requests
        self._settings = settings
        self._budget = budget
        self._on_error = on_error
        self._on_failure = on_failure
        self._log = get_logger("zkconsumer.fetcher", endpoint=str(self.endpoint))
        self._partition_map = PartitionMap()
        self._errors = PartitionErrors(requests, settings, self._partition_map, on_failure, self._log)
        self._wakeup = WakeUp()
        self._full_queues: dict[StreamQueue, set[PartitionQueue]] = {}  # by stream; see _on_room
        self._stopping = False
        self._wait_ms = settings.fetch_wait_max_ms
        self._default_fetch_size = settings.fetch_message_max_bytes  # maximum bytes per partition in the next request
        self._damaged: dict[TopicPartition, DamagedBatch] = {}
        self._thread = OwnedThread(self._run, name, self._report_crash)

    # ---- called by other threads ----

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, *, join: bool = True) -> None:
        """Stop the thread and abort its current request."""
        self._stopping = True
        self._wakeup.set()
        self._requests.abort()
        if join:
            self._thread.join(_JOIN_TIMEOUT_S)

    def add_partitions(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Start fetching partitions from their ``fetch_offset``."""
        infos = list(infos)
        for info in infos:
            info.queue.on_room = self._on_room
            info.starts_at_batch = False  # another leader or a re-created topic may have different batches
        self._partition_map.add(infos)
        self._wakeup.set()

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching partitions; their records in an in-flight response are discarded."""
        self._partition_map.remove(partitions)
        self._wakeup.set()  # their queues may be those that it waits for

    def remove_infos(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Stop fetching partitions, unless they were re-added as new objects."""
        self._partition_map.remove_infos(infos)
        self._wakeup.set()

    def _on_room(self, queue: PartitionQueue) -> None:
        """Wake the thread if ``_are_readers_busy`` would now return False; called by a reader that took an item.

        This is the case if the queue is empty, or if no queue of its stream is still full that was full when the thread
        began to wait. A set of queues is modified only by the reader of their stream.
        """
        full = self._full_queues.get(queue.stream)
        if full:
            full.discard(queue)
        if not full or queue.is_empty:
            self._wakeup.set()

    @property
    def request_rate(self) -> float:
        """Requests per second, averaged over one minute."""
        return self._requests.metrics.requests.one_minute_rate

    @property
    def infos(self) -> list[PartitionTopicInfo]:
        """The partitions of this fetcher."""
        return self._partition_map.infos()

    # ---- run by the fetcher thread ----

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._do_work()
        finally:
            self._budget.unwatch(self._wakeup)
            self._requests.close()

    def _report_crash(self, error: BaseException) -> None:
        """Report an error for the thread's partitions, which would otherwise stall silently (KAFKA-4384)."""
        self.has_ended = True
        if self._stopping:
            return
        self._log.error("fetcher_failed", exc_info=error)
        infos = self.infos
        for info in infos:
            self._on_failure(info, ZkConsumerError(f"fetching from broker {self.endpoint} failed: {error!r}"))
        self.handle_partitions_with_errors(infos)

    def _do_work(self) -> None:
        self._full_queues = {}  # until the queues have been checked, each item taken wakes the thread
        self._wakeup.clear()
        self._budget.watch(self._wakeup)
        if self._stopping:  # close() may have called set() just before clear()
            return
        requested = self.build_fetch_request()
        if not requested:
            self._wakeup.wait()
            return
        try:
            failed = self._fetch_and_process(requested)
        except ClosedError:
            return
        except RetriableError as error:
            self._log.warning("fetch_failed", partition_count=len(requested), error=str(error))
            for info in requested:
                info.record_problem("fetch_failed", error)
            if isinstance(error.__cause__, TimeoutError):
                _reduce_fetch_sizes(requested, self._settings)
            failed = requested
        except ZkConsumerError as error:  # not retriable, such as failed authentication
            for info in requested:
                info.record_problem("fetch_failed", error)
                self._on_failure(info, error)
            self._pause(FATAL_ERROR_BACKOFF_S)
            failed = requested
        self.handle_partitions_with_errors(failed)

    def _fetch_and_process(self, requested: Sequence[PartitionTopicInfo]) -> list[PartitionTopicInfo]:
        """Fetch partitions and fill their queues; return those whose leaders must be looked up again."""
        failed = _resolve_offsets(self._requests, requested, self._log)
        by_partition = {info.partition: info for info in requested if info not in failed}
        if not by_partition:
            return failed
        answer = self.fetch(list(by_partition.values()))
        for data in answer.partitions:
            info = by_partition[data.partition]
            if not self.process_partition_data(info, data, answer):
                failed.append(info)
        return failed

    def build_fetch_request(self) -> list[PartitionTopicInfo]:
        """Return the partitions to fetch: those below their stop offset (``until``) whose queue has room.

        The list is empty if a larger request is possible soon without leaving a reader without records; see
        ``_are_readers_busy``. ``_on_room`` then wakes the thread.

        The broker returns the first record batch of the first non-empty partition regardless of its size (KIP-74).
        Partitions that returned data are moved to the end of the partition map, so that each partition is first in
        turn.
        """
        # For a stream without queued records, one batch is fetched even if the budget is spent (KIP-74).
        default = self._settings.fetch_message_max_bytes
        self._default_fetch_size = min(MIN_FETCH_BYTES, default) if self._budget.is_spent else default
        unfinished = [info for info in self._partition_map.infos() if info.fetch_offset < info.until]
        requested: list[PartitionTopicInfo] = []
        full: dict[StreamQueue, set[PartitionQueue]] = {}
        for info in unfinished:
            if info.queue.has_room:
                requested.append(info)
            else:
                full.setdefault(info.queue.stream, set()).add(info.queue)
        if _are_readers_busy(requested, full):
            self._full_queues = full
            return []
        if not full:
            self._wait_ms = self._settings.fetch_wait_max_ms
        else:
            previous = self._wait_ms if self._wait_ms < self._settings.fetch_wait_max_ms else 0
            self._wait_ms = min(self._settings.fetch_wait_max_ms, 2 * previous or _MIN_WAIT_WITH_FULL_QUEUE_MS)
        return requested

    def fetch(self, infos: Sequence[PartitionTopicInfo]) -> FetchAnswer:
        """Wait for the throttle time to pass, and fetch the partitions; for errors see ``FetchRequests.fetch``."""
        throttle_s = self._requests.throttle_s
        if throttle_s:
            self._pause(throttle_s)
        is_limited = self._default_fetch_size < self._settings.fetch_message_max_bytes
        return self._requests.fetch(
            {info.partition: (info.fetch_offset, info.fetch_size(self._default_fetch_size)) for info in infos},
            fetch_wait_max_ms=self._wait_ms,
            fetch_message_max_bytes=self._default_fetch_size,
            fetch_max_bytes=self._default_fetch_size if is_limited else _compute_response_size(infos, self._settings),
        )

    def process_partition_data(
        self, info: PartitionTopicInfo, data: protocol.PartitionData, answer: FetchAnswer
    ) -> bool:
        """Add the records of a partition to its queue.

        Args:
            answer: the response that contains the data.

        Returns:
            False if the partition's leader must be looked up again.
        """
        if not self._partition_map.holds(info):
            return True  # removed while the request was in flight
        if data.error_code:
            return self._errors.handle(info, data.error_code)
        info.high_watermark, info.problem = data.high_watermark, None
        if not len(data.records):
            return True
        try:
            chunk = self._make_chunk(info, data)
        except _LogEndUnknownError:
            return False
        damaged = self._damaged.get(info.partition)
        if damaged is not None:
            chunk = damaged.check(chunk)
        if chunk.next_offset == info.fetch_offset and chunk.damage is None:
            fetch_size = info.fetch_size(self._default_fetch_size)
            return self._errors.handle_incomplete_batch(info, data, fetch_size, is_truncated=answer.truncates_batches)
        info.queue.put(chunk)
        self._requests.metrics.record_enqueued(info.partition.topic, chunk.nbytes)
        if chunk.damage is not None:
            if chunk.damage.kind is not DamageKind.BATCH_MISSING:
                self._damaged[info.partition] = DamagedBatch(chunk)
            self.remove_infos([info])  # the reader raises the error, and refetches from a valid offset
            return True
        self._damaged.pop(info.partition, None)
        info.fetch_offset = chunk.next_offset
        info.starts_at_batch, info.reset_offset = True, -1
        info.restore_fetch_size(self._settings.fetch_message_max_bytes, is_fast=answer.is_fast)
        self._partition_map.move_to_end(info)
        return True

    def _make_chunk(self, info: PartitionTopicInfo, data: protocol.PartitionData) -> Chunk:
        def look_up_log_end() -> int:
            offsets = self._requests.list_offsets([info.partition], LATEST, read_committed=False)
            error, end = offsets[info.partition]
            if error:
                raise _LogEndUnknownError
            return end

        return make_checked_chunk(
            data,
            info.fetch_offset,
            look_up_log_end,
            starts_at_batch=info.starts_at_batch,
            aborted=data.aborted if self._settings.read_committed else (),
            until=info.until,
            decompressed_batch_max_bytes=self._settings.decompressed_batch_max_bytes,
        )

    def handle_partitions_with_errors(self, infos: Sequence[PartitionTopicInfo]) -> None:
        """Remove partitions and pass them to the leader finder."""
        if infos:
            self._on_error(self._partition_map.remove_infos(infos))

    def _pause(self, duration_s: float) -> None:
        deadline = time.monotonic() + duration_s
        while not self._stopping and (remaining := deadline - time.monotonic()) > 0:
            self._wakeup.wait(remaining)


def _are_readers_busy(requested: Sequence[PartitionTopicInfo], full: Container[StreamQueue]) -> bool:
    """Return whether the request can wait until more queues have room.

    A stream takes items from its queues in turn. As long as one of its queues is full and none is empty, it takes an
    item from the full queue before it runs out of items.

    Args:
        full: streams with full queues.
    """
    return all(info.queue.stream in full and not info.queue.is_empty for info in requested)


def _compute_response_size(infos: Sequence[PartitionTopicInfo], settings: FetchSettings) -> int:
    return min(sum(info.fetch_size(settings.fetch_message_max_bytes) for info in infos), settings.fetch_max_bytes)


def _reduce_fetch_sizes(infos: Sequence[PartitionTopicInfo], settings: FetchSettings) -> None:
    """Reduce the fetch sizes of the partitions, so that a slow connection still makes progress."""
    share = _compute_response_size(infos, settings) // len(infos)
    for info in infos:
        info.reduce_fetch_size(min(info.fetch_size(settings.fetch_message_max_bytes), share) // 2)


def _resolve_offsets(
    requests: FetchRequests, infos: Iterable[PartitionTopicInfo], log: Logger
) -> list[PartitionTopicInfo]:
    """Look up unknown fetch offsets according to ``auto.offset.reset``; return the partitions that failed.

    The partitions' readers receive the offsets as ``PositionChanged``.
    """
    unknown: dict[str, list[PartitionTopicInfo]] = {}
    for info in infos:
        if info.fetch_offset < 0:
            unknown.setdefault(info.auto_offset_reset or "largest", []).append(info)
    failed = []
    for reset, infos_to_reset in unknown.items():
        offsets = requests.list_offsets([info.partition for info in infos_to_reset], RESET_TIMESTAMPS[reset])
        for info in infos_to_reset:
            topic, partition = info.partition
            error, offset = offsets[info.partition]
            if error or offset < 0:
                log.warning(
                    "offset_lookup_failed",
                    topic=topic,
                    partition=partition,
                    error=error_name(error),
                    error_code=error,
                )
                failed.append(info)
                continue
            info.fetch_offset = offset
            if offset == info.reset_offset:
                continue  # the reader already received this offset
            log.info("offset_reset", topic=topic, partition=partition, offset=offset, auto_offset_reset=reset)
            if info.start_offset < 0:
                info.start_offset = offset
            info.reset_offset = offset
            info.starts_at_batch = False
            info.queue.put(PositionChanged(info.partition, offset))
    return failed
