"""ConsumerFetcherThread: fetches from one broker into the queues of some partitions.

Its four steps serve an endless stream and a Spark task that ends at given offsets alike.

Source: Kafka 1.1 kafka.server.AbstractFetcherThread, kafka.consumer.ConsumerFetcherThread,
PartitionTopicInfo. Different on purpose: a partition whose queue is full stays out of the request instead
of blocking the thread, and no lock is held while the broker is asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from zkconsumer.broker import protocol
from zkconsumer.broker.channel import BrokerChannel, Throttle
from zkconsumer.errors import (
    ClosedError,
    CorruptRecordError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    RetriableError,
    ZkConsumerError,
)
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.decode import native
from zkconsumer.fetcher.fetcher_metrics import FetcherMetrics
from zkconsumer.fetcher.partition import RESET, PartitionTopicInfo
from zkconsumer.fetcher.partition_map import PartitionMap
from zkconsumer.fetcher.settings import PAUSE_WHEN_REFUSED, FetchSettings
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.metrics import Metrics

#: Seconds that a request may wait for data while a partition stays out of it: the wait is how late its
#: coming back can be. It grows to ``fetch.wait.max.ms`` as long as the queue stays full.
_FIRST_WAIT_BESIDE_A_FULL_QUEUE_MS = 5

#: Bytes; no broker's ``message.max.bytes`` is larger.
_LARGEST_FETCH = 1 << 30

_UNKNOWN = -1  # Kafka's code for an error that has no other

_JOIN_TIMEOUT = 5.0


class ConsumerFetcherThread:
    """One thread, one connection, one request at a time.

    ``add_partitions``, ``remove_partitions`` and ``close`` are for other threads.

    Args:
        on_error: given the partitions that this broker cannot serve (any more).
        on_failure: given an error for one partition's reader.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        settings: FetchSettings,
        on_error: Callable[[Iterable[PartitionTopicInfo]], None],
        on_failure: Callable[[PartitionTopicInfo, ZkConsumerError], None],
        metrics: Metrics,
    ) -> None:
        self.endpoint = endpoint
        self._settings = settings
        self._on_error = on_error
        self._on_failure = on_failure
        self._log = get_logger("zkconsumer.fetcher", broker=str(endpoint))
        self._channel = BrokerChannel(
            endpoint,
            settings.client_id,
            timeout=settings.socket_timeout,
            receive_buffer=settings.receive_buffer,
            security=settings.security,
        )
        self._throttle = Throttle(settings.socket_timeout)
        self._metrics = FetcherMetrics(metrics, settings.client_id, endpoint)
        self._partition_map = PartitionMap()
        self._wakeup = threading.Event()
        self._stopping = False
        self.has_ended = False
        self._wait_ms = settings.max_wait_ms
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # ---- for other threads ----

    def start(self) -> None:
        """Start fetching."""
        self._thread.start()

    def close(self, *, join: bool = True) -> None:
        """Stop; a request under way is given up."""
        self._stopping = True
        self._wakeup.set()
        self._channel.close()
        if join and self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_TIMEOUT)

    def add_partitions(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Fetch these too, from their ``fetch_offset``."""
        infos = list(infos)
        for info in infos:
            info.queue.on_room = self._wakeup.set
        self._partition_map.add(infos)
        self._wakeup.set()

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these no more; an answer that is under way is dropped."""
        self._partition_map.remove(partitions)

    def remove_infos(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """The same, but only for these very objects."""
        self._partition_map.remove_infos(infos)

    @property
    def request_rate(self) -> float:
        """Requests per second of late."""
        return self._metrics.requests.one_minute_rate

    @property
    def infos(self) -> list[PartitionTopicInfo]:
        """The partitions that are fetched now."""
        return self._partition_map.infos()

    # ---- the thread ----

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._do_work()
        except BaseException as error:  # a thread that ends in silence would starve its partitions (KAFKA-4384)
            self.has_ended = True
            if not self._stopping:
                self._log.error("fetcher_failed", exc_info=True)
                infos = self.infos
                for info in infos:
                    self._on_failure(info, ZkConsumerError(f"fetching from broker {self.endpoint} failed: {error!r}"))
                self.handle_partitions_with_errors(infos)
        finally:
            self._channel.close()

    def _do_work(self) -> None:
        self._wakeup.clear()
        if self._stopping:  # close() may have set the event just before
            return
        wanted = self.build_fetch_request()
        if not wanted:
            self._wakeup.wait()
            return
        failed: list[PartitionTopicInfo] = []
        try:
            failed = self._resolve(wanted)
            by_partition = {info.partition: info for info in wanted if info not in failed}
            answer = self.fetch(list(by_partition.values())) if by_partition else ()
            for data in answer:
                info = by_partition.pop(data.partition, None)
                if info is not None and not self.process_partition_data(info, data):
                    failed.append(info)
        except ClosedError:
            return
        except RetriableError as error:
            self._log.warning("fetch_failed", error=str(error), partitions=len(wanted))
            failed = wanted
        except ZkConsumerError as error:  # a login that is refused, and the like: the user has to know
            for info in wanted:
                self._on_failure(info, error)
            self._pause(PAUSE_WHEN_REFUSED)
            failed = wanted
        self.handle_partitions_with_errors(failed)

    def build_fetch_request(self) -> list[PartitionTopicInfo]:
        """Return the partitions to ask for: those that are not at their end and whose queue has room.

        The order is that of the map, in which those that returned data go to the end: the first with data
        gets a record of any size (KIP-74), and so each gets its turn.
        """
        open_ones = [info for info in self._partition_map.infos() if info.fetch_offset < info.until]
        wanted = [info for info in open_ones if info.queue.has_room]
        if len(wanted) == len(open_ones):
            self._wait_ms = self._settings.max_wait_ms
        else:
            previous = self._wait_ms if self._wait_ms < self._settings.max_wait_ms else 0
            self._wait_ms = min(self._settings.max_wait_ms, 2 * previous or _FIRST_WAIT_BESIDE_A_FULL_QUEUE_MS)
        return wanted

    def fetch(self, wanted: Sequence[PartitionTopicInfo]) -> Sequence[protocol.PartitionData]:
        """Ask the broker."""
        pause = self._throttle.remaining()
        if pause:
            self._pause(pause)
        request = protocol.fetch_request(
            {info.partition: info.fetch_offset for info in wanted},
            max_wait_ms=self._wait_ms,
            min_bytes=self._settings.min_bytes,
            partition_max_bytes=self._settings.partition_max_bytes,
            larger={info.partition: info.max_bytes for info in wanted if info.max_bytes},
            read_committed=self._settings.read_committed,
        )
        asked_at = time.monotonic()
        with self._channel.exchange(request) as frame:
            size = frame.left
            answer = protocol.read_fetch_answer(frame, request.API_VERSION)
        self._throttle.note(answer.throttle_time_ms)
        self._metrics.fetched(time.monotonic() - asked_at, size, answer.throttle_time_ms / 1000)
        if answer.error_code:
            raise RetriableError(f"broker {self.endpoint} refused a fetch with error {answer.error_code}")
        return answer.partitions

    def process_partition_data(self, info: PartitionTopicInfo, data: protocol.PartitionData) -> bool:
        """Put what came into the partition's queue; False where the partition has to find its leader anew."""
        if not self._partition_map.holds(info):
            return True  # it was taken away meanwhile
        if data.error_code == protocol.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(info)
        if data.error_code == protocol.CORRUPT_MESSAGE:
            self._on_failure(info, self._corrupt_log(info))
            return False
        if data.error_code:
            self._log.info("partition_error", partition=str(info.partition), code=data.error_code)
            return False
        info.high_watermark = data.high_watermark
        if not len(data.records):
            return True
        next_offset, complete = native.next_offset(data.records)
        if not complete:
            return self._nothing_complete(info, data)
        chunk = Chunk(info.partition, info.fetch_offset, next_offset, data.records, data.aborted, info.until)
        info.queue.put(chunk)
        self._metrics.enqueued(info.partition.topic, chunk.nbytes)
        info.fetch_offset = next_offset
        info.max_bytes = 0
        self._partition_map.move_to_end(info)
        return True

    def _corrupt_log(self, info: PartitionTopicInfo) -> CorruptRecordError:
        topic, partition = info.partition
        return CorruptRecordError(
            f"topic {topic!r} partition {partition} offset {info.fetch_offset}: broker {self.endpoint} cannot read "
            "its log there. It will be fetched again; if it stays, restore the partition from a replica or commit "
            "an offset behind the damaged batch",
            info.fetch_offset,
        )

    def handle_partitions_with_errors(self, infos: Sequence[PartitionTopicInfo]) -> None:
        """Hand partitions back to the leader finder."""
        if not infos:
            return
        self._on_error(self._partition_map.remove_infos(infos))

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopping and (left := deadline - time.monotonic()) > 0:
            self._wakeup.wait(left)
            self._wakeup.clear()

    def _nothing_complete(self, info: PartitionTopicInfo, data: protocol.PartitionData) -> bool:
        """An answer without one whole entry: too large for the limit, or damaged at its start."""
        limit = info.max_bytes or self._settings.partition_max_bytes
        topic, partition = info.partition
        if len(data.records) < limit:
            # Not cut by the limit: the reader finds out what is wrong with it.
            info.queue.put(Chunk(info.partition, info.fetch_offset, info.fetch_offset, data.records))
            self.remove_infos([info])
            return True
        info.max_bytes = min(2 * limit, _LARGEST_FETCH)  # brokers before 0.10.1 cut records, the others never do
        self._log.info("record_larger_than_fetch", partition=str(info.partition), offset=info.fetch_offset, size=limit)
        if limit < _LARGEST_FETCH:
            return True
        self._on_failure(
            info,
            MessageSizeTooLargeError(
                f"topic {topic!r} partition {partition} offset {info.fetch_offset}: a record seems to be larger than "
                f"{limit} bytes; if it is damaged, commit an offset behind it"
            ),
        )
        return False

    def _out_of_range(self, info: PartitionTopicInfo) -> bool:
        topic, partition = info.partition
        if info.reset is not None:
            self._log.warning("offset_out_of_range", topic=topic, partition=partition, offset=info.fetch_offset)
            info.fetch_offset = -1  # looked up before the next request
            return True
        bounds = [
            self._list_offsets([info], at).get(info.partition, (_UNKNOWN, -1))
            for at in (protocol.EARLIEST, protocol.LATEST)
        ]
        if any(error for error, _ in bounds):
            return False
        (_, start), (_, end) = bounds
        self._on_failure(
            info,
            OffsetOutOfRangeError(
                f"topic {topic!r} partition {partition}: offset {info.fetch_offset} is not in the log, which holds "
                f"offsets from {start} to {end}",
                start,
                end,
            ),
        )
        self.remove_infos([info])
        return True

    def _resolve(self, wanted: Sequence[PartitionTopicInfo]) -> list[PartitionTopicInfo]:
        """Look up the offsets that are not known, as ``auto.offset.reset`` says; returns those without an answer.

        The readers learn of them through the queues.
        """
        unknown: dict[str, list[PartitionTopicInfo]] = {}
        for info in wanted:
            if info.fetch_offset < 0:
                unknown.setdefault(info.reset or "largest", []).append(info)
        failed = []
        for reset, infos in unknown.items():
            answers = self._list_offsets(infos, RESET[reset])
            for info in infos:
                error, offset = answers.get(info.partition, (_UNKNOWN, -1))
                if error or offset < 0:
                    self._log.warning("offset_not_found", partition=str(info.partition), code=error)
                    failed.append(info)
                    continue
                self._log.info("offset_reset", partition=str(info.partition), offset=offset, to=reset)
                if info.start < 0:
                    info.start = offset
                info.fetch_offset = offset
                info.queue.put(Chunk(info.partition, offset, offset, b""))
        return failed

    def _list_offsets(
        self, infos: Iterable[PartitionTopicInfo], timestamp: int
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        request = protocol.list_offsets_request(
            [info.partition for info in infos], timestamp, read_committed=self._settings.read_committed
        )
        return protocol.read_offsets_answer(self._channel.request(request))
