"""ConsumerFetcherThread: fetches records of some partitions from one broker into their queues.

A Spark task, which reads up to given offsets, uses the same thread as a stream without an end.

Source: Kafka 1.1 kafka.server.AbstractFetcherThread, kafka.consumer.ConsumerFetcherThread. Deliberate differences: a
partition whose queue is full is left out of the request instead of blocking the thread, and no lock is held during a
request.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from zkconsumer.broker import protocol
from zkconsumer.broker.error_codes import broker_error, error_name
from zkconsumer.broker.throttle import Throttle
from zkconsumer.errors import (
    ClosedError,
    CorruptRecordError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    RetriableError,
    ZkConsumerError,
)
from zkconsumer.fetcher.batch_headers import DamagedBatch, make_checked_chunk
from zkconsumer.fetcher.channel_pool import ChannelPool
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.damage import DamageKind
from zkconsumer.fetcher.fetch_session import (
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_FETCH_SESSION_EPOCH,
    FetchSession,
)
from zkconsumer.fetcher.fetch_settings import FATAL_ERROR_BACKOFF_S, FetchSettings
from zkconsumer.fetcher.fetcher_metrics import FetcherMetrics
from zkconsumer.fetcher.partition import MIN_FETCH_BYTES, RESET_TIMESTAMPS, PartitionTopicInfo
from zkconsumer.fetcher.partition_map import PartitionMap
from zkconsumer.fetcher.queues import ByteBudget
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.metrics import Metrics

#: Milliseconds that the broker waits for data while a partition is left out of the request. When the queue of that
#: partition has room again, its next fetch is delayed by up to this time. Doubles up to ``fetch.wait.max.ms`` while
#: the queue stays full.
_MIN_WAIT_WITH_FULL_QUEUE_MS = 5

#: Maximum bytes to which a fetch is enlarged because a batch claims to have them, unless ``fetch.message.max.bytes`` is
#: larger. Brokers accept no larger requests from producers by default (``socket.request.max.bytes``).
_MAX_ENLARGED_FETCH_BYTES = 100 << 20

#: First version of Fetch responses with a whole batch of any size (KIP-74), since Kafka 0.10.1.
_FIRST_WITH_WHOLE_BATCH = 3

#: Offset and size field of an entry.
_ENTRY_START = struct.Struct(">qi")

#: Share of the timeout within which a response is fast, so that more may be fetched at once.
_FAST_SHARE = 0.25

#: Error code and offset of a partition that is missing in a ListOffsets response.
_MISSING = protocol.UNKNOWN_SERVER_ERROR, -1

_JOIN_TIMEOUT_S = 5.0


class _LogEndUnknownError(Exception):
    """The broker did not return the log end offset of a partition."""


class ConsumerFetcherThread:
    """Fetches from one broker: one thread, one connection, one request at a time.

    Other threads call ``add_partitions``, ``remove_partitions``, ``remove_infos`` and ``close``.

    Args:
        on_error: called with partitions that could not be fetched; their leaders must be looked up again.
        on_failure: called with a partition and the error to raise to its reader.
        budget: limits the bytes of all fetchers and queues of a consumer or task.
        channels: connections of earlier fetchers, to which this one returns its connection; None to open and close it.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        settings: FetchSettings,
        on_error: Callable[[Iterable[PartitionTopicInfo]], None],
        on_failure: Callable[[PartitionTopicInfo, ZkConsumerError], None],
        metrics: Metrics,
        budget: ByteBudget,
        channels: ChannelPool | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._settings = settings
        self._on_error = on_error
        self._on_failure = on_failure
        self._log = get_logger("zkconsumer.fetcher", endpoint=str(endpoint))
        self._budget = budget
        self._channels = channels
        connecting = settings.connecting
        self._channel = connecting.channel(endpoint) if channels is None else channels.take(endpoint, connecting)
        self._session = FetchSession(is_requested=channels is None)  # not in Spark tasks, which end soon
        self._throttle = Throttle(connecting.timeout_s)
        self._metrics = FetcherMetrics(metrics, connecting.client_id, endpoint)
        self._partition_map = PartitionMap()
        self._wakeup = threading.Event()
        self._stopping = False
        self.has_ended = False
        self._wait_ms = settings.max_wait_ms
        self._partition_max_bytes = settings.partition_max_bytes  # of the current request
        self._truncates_batches = False
        self._is_fast = True  # whether the last response took a small share of the timeout
        self._damaged: dict[TopicPartition, DamagedBatch] = {}
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # ---- called by other threads ----

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, *, join: bool = True) -> None:
        """Stop the thread and abort its current request."""
        self._stopping = True
        self._wakeup.set()
        if self._channels is None or self._channel.is_in_use:
            self._channel.close()
        if join and self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_TIMEOUT_S)

    def add_partitions(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Start to fetch partitions, from their ``fetch_offset``."""
        infos = list(infos)
        for info in infos:
            info.queue.on_room = self._wakeup.set
            info.starts_at_batch = False  # the log of another leader, or a re-created topic, may have other batches
        self._partition_map.add(infos)
        self._wakeup.set()

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching partitions; their records in a response in flight are discarded."""
        self._partition_map.remove(partitions)

    def remove_infos(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Stop fetching partitions unless they have been added again as other objects."""
        self._partition_map.remove_infos(infos)

    @property
    def request_rate(self) -> float:
        """Requests per second, averaged over one minute."""
        return self._metrics.requests.one_minute_rate

    @property
    def infos(self) -> list[PartitionTopicInfo]:
        """The partitions of this fetcher."""
        return self._partition_map.infos()

    # ---- the thread ----

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._do_work()
        except BaseException as error:  # else its partitions would stall silently (KAFKA-4384)
            self.has_ended = True
            if not self._stopping:
                self._log.error("fetcher_failed", exc_info=True)
                infos = self.infos
                for info in infos:
                    self._on_failure(info, ZkConsumerError(f"fetching from broker {self.endpoint} failed: {error!r}"))
                self.handle_partitions_with_errors(infos)
        finally:
            self._budget.unwatch(self._wakeup)
            if self._channels is None:
                self._channel.close()
            else:
                self._channels.put(self._channel, self._settings.connecting)

    def _do_work(self) -> None:
        self._wakeup.clear()
        self._budget.watch(self._wakeup)
        if self._stopping:  # close() may have set the event just before it was cleared
            return
        requested = self.build_fetch_request()
        if not requested:
            self._wakeup.wait()
            return
        failed: list[PartitionTopicInfo] = []
        try:
            failed = self._resolve_offsets(requested)
            by_partition = {info.partition: info for info in requested if info not in failed}
            response = self.fetch(list(by_partition.values())) if by_partition else ()
            for data in response:
                info = by_partition[data.partition]
                if not self.process_partition_data(info, data):
                    failed.append(info)
        except ClosedError:
            return
        except RetriableError as error:
            self._log.warning("fetch_failed", partition_count=len(requested), error=str(error))
            for info in requested:
                info.record_problem("fetch_failed", error)
            if isinstance(error.__cause__, TimeoutError):
                self._reduce_fetch_sizes(requested)
            failed = requested
        except ZkConsumerError as error:  # not retriable, such as failed authentication
            for info in requested:
                info.record_problem("fetch_failed", error)
                self._on_failure(info, error)
            self._pause(FATAL_ERROR_BACKOFF_S)
            failed = requested
        self.handle_partitions_with_errors(failed)

    def build_fetch_request(self) -> list[PartitionTopicInfo]:
        """Return the partitions to request: those that are not at their end and whose queue has room.

        The broker returns a record of any size for the first partition that has data (KIP-74). The map moves partitions
        that returned data to the end, so that each partition becomes the first one in turn.
        """
        # Of a stream without records, one batch is fetched even if the budget is spent (KIP-74).
        default = self._settings.partition_max_bytes
        self._partition_max_bytes = min(MIN_FETCH_BYTES, default) if self._budget.is_spent else default
        unfinished = [info for info in self._partition_map.infos() if info.fetch_offset < info.until]
        requested = [info for info in unfinished if info.queue.has_room]
        if len(requested) == len(unfinished):
            self._wait_ms = self._settings.max_wait_ms
        else:
            previous = self._wait_ms if self._wait_ms < self._settings.max_wait_ms else 0
            self._wait_ms = min(self._settings.max_wait_ms, 2 * previous or _MIN_WAIT_WITH_FULL_QUEUE_MS)
        return requested

    def fetch(self, infos: Sequence[PartitionTopicInfo]) -> Sequence[protocol.PartitionData]:
        """Send a fetch request and return the response.

        Raises:
            RetriableError: the broker is unreachable, rejected the request, or returned other partitions.
            ClosedError: the thread has been closed.
        """
        throttle_s = self._throttle.remaining()
        if throttle_s:
            self._pause(throttle_s)
        is_limited = self._partition_max_bytes < self._settings.partition_max_bytes
        wanted = self._partition_max_bytes if is_limited else self._response_size(infos)
        max_bytes = self._budget.reserve(wanted, self._partition_max_bytes)
        try:
            return self._fetch(infos, max_bytes)
        finally:
            self._budget.release(max_bytes)  # the chunks of the response take their own share when they are queued

    def _response_size(self, infos: Sequence[PartitionTopicInfo]) -> int:
        default = self._settings.partition_max_bytes
        return min(sum(info.fetch_size(default) for info in infos), self._settings.max_bytes)

    def _fetch(self, infos: Sequence[PartitionTopicInfo], max_bytes: int) -> Sequence[protocol.PartitionData]:
        wanted = {info.partition: (info.fetch_offset, info.fetch_size(self._partition_max_bytes)) for info in infos}
        delta = self._session.delta(wanted)
        request = protocol.fetch_request(
            {partition: offset for partition, (offset, _) in delta.positions.items()},
            max_wait_ms=self._wait_ms,
            min_bytes=self._settings.min_bytes,
            partition_max_bytes=self._partition_max_bytes,
            max_bytes=max_bytes,
            max_bytes_overrides={partition: size for partition, (_, size) in delta.positions.items()},
            read_committed=self._settings.read_committed,
            session=(delta.session_id, delta.epoch),
            forgotten=delta.forgotten,
        )
        if self._stopping:  # close() has not aborted the request, because it had not been sent
            raise ClosedError("the fetcher has been closed")
        sent_at = time.monotonic()
        try:
            with self._channel.exchange(request) as frame:
                size = frame.remaining
                response = protocol.read_fetch_response(frame, request.API_VERSION)
        except ZkConsumerError:
            self._session.reset()
            raise
        self._throttle.update(response.throttle_time_ms)
        duration = time.monotonic() - sent_at
        self._is_fast = duration < self._settings.connecting.timeout_s * _FAST_SHARE
        self._metrics.record_response(duration, size, response.throttle_time_ms / 1000)
        if response.error_code:
            self._session.reset()
            if response.error_code in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH):
                return ()  # the broker restarted or discarded the session; the next request is a full one
            raise broker_error(response.error_code, f"broker {self.endpoint} rejected the fetch request")
        self._session.update(wanted, response)
        returned, requested = {data.partition for data in response.partitions}, wanted.keys()
        is_complete = returned == requested if delta.is_full else returned <= requested
        if not is_complete or len(response.partitions) != len(returned):
            self._session.reset()
            raise RetriableError(
                f"broker {self.endpoint} did not return the requested partitions exactly once: missing "
                f"[{_names(requested - returned)}], not requested [{_names(returned - requested)}]"
            )
        self._truncates_batches = request.API_VERSION < _FIRST_WITH_WHOLE_BATCH
        return response.partitions

    def process_partition_data(self, info: PartitionTopicInfo, data: protocol.PartitionData) -> bool:
        """Add the records of a partition to its queue.

        Returns:
            False if the leader of the partition must be looked up again.
        """
        if not self._partition_map.holds(info):
            return True  # removed while the request was in flight
        if data.error_code:
            return self._process_error(info, data.error_code)
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
            return self._process_incomplete(info, data)
        info.queue.put(chunk)
        self._metrics.record_enqueued(info.partition.topic, chunk.nbytes)
        if chunk.damage is not None:
            if chunk.damage.kind is not DamageKind.BATCH_MISSING:
                self._damaged[info.partition] = DamagedBatch(chunk)
            self.remove_infos([info])  # the reader raises the error, and fetches again from a valid offset
            return True
        self._damaged.pop(info.partition, None)
        info.fetch_offset = chunk.next_offset
        info.starts_at_batch, info.reset_offset = True, -1
        info.restore_fetch_size(self._settings.partition_max_bytes, is_fast=self._is_fast)
        self._partition_map.move_to_end(info)
        return True

    def _make_chunk(self, info: PartitionTopicInfo, data: protocol.PartitionData) -> Chunk:
        return make_checked_chunk(
            data,
            info.fetch_offset,
            lambda: self._log_end_offset(info),
            starts_at_batch=info.starts_at_batch,
            aborted=data.aborted if self._settings.read_committed else (),
            until=info.until,
            max_decompressed_bytes=self._settings.max_decompressed_bytes,
        )

    def _log_end_offset(self, info: PartitionTopicInfo) -> int:
        offsets = self._list_offsets([info], protocol.LATEST, read_committed=False)
        error, end = offsets.get(info.partition, _MISSING)
        if error:
            raise _LogEndUnknownError
        return end

    def _reduce_fetch_sizes(self, infos: Sequence[PartitionTopicInfo]) -> None:
        """Halve the size of the next response, so that a slow connection still makes progress."""
        default = self._settings.partition_max_bytes
        share = self._response_size(infos) // len(infos)
        for info in infos:
            info.reduce_fetch_size(min(info.fetch_size(default), share) // 2)

    def handle_partitions_with_errors(self, infos: Sequence[PartitionTopicInfo]) -> None:
        """Remove partitions and pass them to the leader finder."""
        if infos:
            self._on_error(self._partition_map.remove_infos(infos))

    def _pause(self, duration_s: float) -> None:
        deadline = time.monotonic() + duration_s
        while not self._stopping and (remaining := deadline - time.monotonic()) > 0:
            self._wakeup.wait(remaining)
            self._wakeup.clear()

    # ---- errors of one partition; the results are those of process_partition_data ----

    def _process_error(self, info: PartitionTopicInfo, error_code: int) -> bool:
        if error_code == protocol.OFFSET_OUT_OF_RANGE:
            return self._process_out_of_range(info)
        topic, partition = info.partition
        if error_code == protocol.CORRUPT_MESSAGE:
            error = CorruptRecordError(
                f"topic {topic!r} partition {partition} offset {info.fetch_offset}: broker {self.endpoint} cannot read "
                "its log at this offset. The batch is fetched again; if the error persists, restore the partition from "
                "a replica, or commit an offset after the damaged batch",
                info.fetch_offset,
            )
            self._on_failure(info, error)
        else:
            self._record_problem(info, error_code)
        return False

    def _record_problem(self, info: PartitionTopicInfo, error_code: int) -> None:
        """Record why the broker does not return records, and log each new reason once."""
        topic, partition = info.partition
        error = broker_error(error_code, f"could not fetch partition {info.partition} from broker {self.endpoint}")
        if info.record_problem("fetch_failed", error):
            log = self._log.warning if error_code == protocol.TOPIC_AUTHORIZATION_FAILED else self._log.info
            log(
                "partition_fetch_failed",
                topic=topic,
                partition=partition,
                error=error_name(error_code),
                error_code=error_code,
            )

    def _process_incomplete(self, info: PartitionTopicInfo, data: protocol.PartitionData) -> bool:
        """Handle data without a complete batch: it exceeds the fetch size, or its header is damaged."""
        fetch_size = info.fetch_size(self._partition_max_bytes)
        topic, partition = info.partition
        if not self._truncates_batches or len(data.records) < fetch_size:
            # The broker has not truncated the data, so they are damaged. The reader raises the error.
            info.queue.put(Chunk(info.partition, info.fetch_offset, info.fetch_offset, data.records))
            self.remove_infos([info])
            return True
        needed = 2 * fetch_size
        if len(data.records) >= _ENTRY_START.size:
            needed = max(_ENTRY_START.size + _ENTRY_START.unpack_from(data.records)[1], fetch_size + 1)
        limit = max(self._settings.partition_max_bytes, _MAX_ENLARGED_FETCH_BYTES)
        if needed <= limit:
            info.max_bytes, info.is_slow = needed, False
            self._log.info(
                "record_too_large", topic=topic, partition=partition, offset=info.fetch_offset, fetch_size=needed
            )
            return True
        error = MessageSizeTooLargeError(
            f"topic {topic!r} partition {partition} offset {info.fetch_offset}: the next record claims {needed} bytes, "
            f"more than the limit of {limit} bytes. If the size is right, increase fetch.message.max.bytes; "
            "if the record is damaged, commit an offset after it"
        )
        self._on_failure(info, error)
        return False

    def _process_out_of_range(self, info: PartitionTopicInfo) -> bool:
        topic, partition = info.partition
        if info.auto_offset_reset is not None:
            self._log.warning("offset_out_of_range", topic=topic, partition=partition, offset=info.fetch_offset)
            is_repeated = info.fetch_offset == info.reset_offset
            info.fetch_offset = -1  # looked up before the next request
            return not is_repeated  # back off if the broker does not have the offset that it returned
        (start_error, start), (end_error, end) = (
            self._list_offsets([info], timestamp).get(info.partition, _MISSING)
            for timestamp in (protocol.EARLIEST, protocol.LATEST)
        )
        if start_error or end_error:
            return False
        error = OffsetOutOfRangeError(
            f"topic {topic!r} partition {partition}: offset {info.fetch_offset} is out of range; the log start "
            f"offset is {start} and the end offset is {end}",
            start,
            end,
        )
        self._on_failure(info, error)
        self.remove_infos([info])
        return True

    # ---- offset lookup ----

    def _resolve_offsets(self, infos: Sequence[PartitionTopicInfo]) -> list[PartitionTopicInfo]:
        """Look up unknown fetch offsets according to ``auto.offset.reset``; return the partitions that failed.

        An empty chunk announces the offset to the reader.
        """
        unknown: dict[str, list[PartitionTopicInfo]] = {}
        for info in infos:
            if info.fetch_offset < 0:
                unknown.setdefault(info.auto_offset_reset or "largest", []).append(info)
        failed = []
        for reset, infos_to_reset in unknown.items():
            offsets = self._list_offsets(infos_to_reset, RESET_TIMESTAMPS[reset])
            for info in infos_to_reset:
                topic, partition = info.partition
                error, offset = offsets.get(info.partition, _MISSING)
                if error or offset < 0:
                    self._log.warning(
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
                    continue  # already announced
                self._log.info("offset_reset", topic=topic, partition=partition, offset=offset, auto_offset_reset=reset)
                if info.start_offset < 0:
                    info.start_offset = offset
                info.reset_offset = offset
                info.starts_at_batch = False
                info.queue.put(Chunk(info.partition, offset, offset, b""))
        return failed

    def _list_offsets(
        self, infos: Iterable[PartitionTopicInfo], timestamp: int, *, read_committed: bool | None = None
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        request = protocol.list_offsets_request(
            [info.partition for info in infos],
            timestamp,
            read_committed=self._settings.read_committed if read_committed is None else read_committed,
        )
        return protocol.parse_list_offsets_response(self._channel.request(request))


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
