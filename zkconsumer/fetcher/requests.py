"""FetchRequests: sends a fetcher's requests to its broker, measures them, and waits if the broker throttles them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from zkconsumer.broker import protocol
from zkconsumer.broker.error_codes import broker_error
from zkconsumer.broker.fetch_request import FetchRequest, Position
from zkconsumer.errors import ClosedError, RetriableError, ZkConsumerError
from zkconsumer.fetcher.channel_pool import ChannelPool
from zkconsumer.fetcher.fetch_session import (
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_FETCH_SESSION_EPOCH,
    FetchDelta,
    FetchSession,
)
from zkconsumer.fetcher.fetch_settings import FetchSettings
from zkconsumer.fetcher.queues import ByteBudget
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.metrics import Kind, Metrics, TopicMeters, declare

#: First Fetch version whose responses contain at least one whole batch of any size (KIP-74, Kafka 0.10.1).
_FIRST_WITH_WHOLE_BATCH = 3

#: A response is fast if it took less than this fraction of the timeout. After a fast response, a reduced fetch size may
#: grow again.
_FAST_SHARE = 0.25

#: Error code and offset for a partition that is missing from a ListOffsets response.
_MISSING = protocol.UNKNOWN_SERVER_ERROR, -1

_BROKER = "clientId, brokerHost, brokerPort"
_FETCHES = "kafka.consumer", "FetchRequestAndResponseMetrics"
_FETCH_TAGS = "clientId, [brokerHost, brokerPort]"

_REQUESTS = declare("kafka.server", "FetcherStats", "RequestsPerSec", Kind.METER, _BROKER, "Fetch requests.")
_BYTES = declare("kafka.server", "FetcherStats", "BytesPerSec", Kind.METER, _BROKER, "Bytes received.")
_TIMES = declare(*_FETCHES, "FetchRequestRateAndTimeMs", Kind.TIMER, _FETCH_TAGS, "Fetch request latency.")
_SIZES = declare(*_FETCHES, "FetchResponseSize", Kind.HISTOGRAM, _FETCH_TAGS, "Fetch response size, in bytes.")
_THROTTLES = declare(
    *_FETCHES,
    "FetchRequestThrottleRateAndTimeMs",
    Kind.TIMER,
    _FETCH_TAGS,
    "Fetch throttle time.",
)
_ENQUEUED = declare(
    "kafka.consumer",
    "ConsumerTopicMetrics",
    "BytesPerSec",
    Kind.METER,
    "clientId, [topic]",
    "Bytes added to the queues.",
)


class Throttle:
    """Delay requested by a broker through ``throttle_time_ms``; as of Kafka 2.0, clients must apply it (KIP-219).

    Args:
        max_delay_s: maximum delay in seconds, so that a corrupt value cannot stop the client for days. If the requested
            delay is longer, the broker mutes the connection anyway.
    """

    def __init__(self, max_delay_s: float) -> None:
        self._max_delay_s = max_delay_s
        self._until = 0.0

    def update(self, throttle_time_ms: int) -> None:
        """Apply the throttle time of a response."""
        if throttle_time_ms > 0:
            self._until = time.monotonic() + min(self._max_delay_s, throttle_time_ms / 1000)

    def remaining(self) -> float:
        """Return the seconds to wait before the next request."""
        return max(0.0, self._until - time.monotonic())


class FetcherMetrics:
    """Rates, sizes and latencies of the fetch requests to one broker."""

    def __init__(self, metrics: Metrics, client_id: str, endpoint: Endpoint) -> None:
        broker = {"clientId": client_id, "brokerHost": endpoint.host, "brokerPort": endpoint.port}
        all_tags = ({"clientId": client_id}, broker)
        self._enqueued = TopicMeters(metrics, _ENQUEUED, clientId=client_id)
        self.requests = metrics.meter(_REQUESTS, **broker)
        self._bytes = metrics.meter(_BYTES, **broker)
        self._times = [metrics.timer(_TIMES, **tags) for tags in all_tags]
        self._sizes = [metrics.histogram(_SIZES, **tags) for tags in all_tags]
        self._throttles = [metrics.timer(_THROTTLES, **tags) for tags in all_tags]

    def record_response(self, duration_s: float, size: int, throttle_s: float) -> None:
        """Record a fetch response of ``size`` bytes."""
        self.requests.mark()
        self._bytes.mark(size)
        for times, sizes, throttles in zip(self._times, self._sizes, self._throttles, strict=True):
            times.update(duration_s)
            sizes.update(size)
            throttles.update(throttle_s)

    def record_enqueued(self, topic: str, size: int) -> None:
        """Record that ``size`` bytes of records were added to a queue."""
        self._enqueued.mark(topic, size)


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """The response to a fetch request.

    Attributes:
        partitions: returned partitions; empty if the broker rejected the fetch session.
        is_fast: whether the response took only a small fraction of the timeout.
        truncates_batches: whether the broker truncates batches that are larger than the fetch size.
    """

    partitions: Sequence[protocol.PartitionData]
    is_fast: bool
    truncates_batches: bool


class FetchRequests:
    """Sends Fetch and ListOffsets requests to a broker over one connection, which the first request opens.

    One thread sends the requests. Other threads may only call ``abort``.

    Args:
        endpoint: the broker.
        settings: fetch settings.
        budget: byte limit shared by all responses and queues of a consumer or task.
        metrics: metrics registry.
        channels: connection pool that provides the connection and takes it back on ``close``; None to use no pool.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        settings: FetchSettings,
        budget: ByteBudget,
        metrics: Metrics,
        channels: ChannelPool | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.metrics = FetcherMetrics(metrics, settings.connecting.client_id, endpoint)
        self._settings = settings
        self._budget = budget
        self._channels = channels
        connecting = settings.connecting
        self._channel = connecting.channel(endpoint) if channels is None else channels.take(endpoint, connecting)
        self._session = FetchSession(is_requested=channels is None)  # not in Spark tasks, which are short-lived
        self._throttle = Throttle(connecting.timeout_s)
        self._is_aborted = False

    def abort(self) -> None:
        """Make the current fetch and all later fetches raise ``ClosedError``; may be called from any thread."""
        self._is_aborted = True
        if self._channels is None or self._channel.is_in_use:
            self._channel.close()

    def close(self) -> None:
        """Close the connection, or return it to the pool."""
        if self._channels is None:
            self._channel.close()
        else:
            self._channels.put(self._channel, self._settings.connecting)

    @property
    def throttle_s(self) -> float:
        """Seconds to wait before the next fetch, as requested by the broker."""
        return self._throttle.remaining()

    def fetch(
        self,
        positions: Mapping[TopicPartition, Position],
        *,
        fetch_wait_max_ms: int,
        fetch_message_max_bytes: int,
        fetch_max_bytes: int,
    ) -> FetchAnswer:
        """Fetch records at the given positions.

        Args:
            fetch_wait_max_ms: maximum milliseconds that the broker waits for records.
            fetch_message_max_bytes: default fetch size per partition in bytes. At least this size is reserved from the
                budget.
            fetch_max_bytes: maximum size of the response in bytes. It is reserved from the budget during the request,
                and reduced if the budget has fewer bytes left.

        Raises:
            RetriableError: the broker is unreachable, rejected the request, or returned unexpected partitions.
            ClosedError: ``abort`` was called.
        """
        reserved = self._budget.reserve(fetch_max_bytes, fetch_message_max_bytes)
        try:
            return self._fetch(positions, fetch_wait_max_ms, reserved)
        finally:
            self._budget.release(reserved)  # queued chunks are counted against the budget separately

    def _fetch(
        self,
        positions: Mapping[TopicPartition, Position],
        fetch_wait_max_ms: int,
        reserved: int,
    ) -> FetchAnswer:
        delta = self._session.delta(positions)
        request = FetchRequest(
            delta.positions,
            max_wait_ms=fetch_wait_max_ms,
            min_bytes=self._settings.fetch_min_bytes,
            read_committed=self._settings.read_committed,
            max_bytes=reserved,
            session=(delta.session_id, delta.epoch),
            forgotten=delta.forgotten,
        )
        response, is_fast = self._send(request)
        truncates_batches = request.version < _FIRST_WITH_WHOLE_BATCH
        if response.error_code:
            self._session.reset()
            if response.error_code in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH):
                # The broker discarded the session, or was restarted; the next request is a full request.
                return FetchAnswer((), is_fast, truncates_batches)
            raise broker_error(response.error_code, f"broker {self.endpoint} rejected the fetch request")
        self._session.update(positions, response)
        self._check_returned(delta, positions.keys(), [data.partition for data in response.partitions])
        return FetchAnswer(response.partitions, is_fast, truncates_batches)

    def _send(self, request: FetchRequest) -> tuple[protocol.FetchResult, bool]:
        """Send a fetch request; return the response, and whether it was fast."""
        if self._is_aborted:  # abort() did not close the connection, because no request was in flight
            raise ClosedError("the fetcher has been closed")
        sent_at = time.monotonic()
        try:
            with self._channel.exchange(request) as frame:
                size = frame.remaining
                response = protocol.read_fetch_response(frame, request.version)
        except ZkConsumerError:
            self._session.reset()
            raise
        self._throttle.update(response.throttle_time_ms)
        duration_s = time.monotonic() - sent_at
        self.metrics.record_response(duration_s, size, response.throttle_time_ms / 1000)
        return response, duration_s < self._settings.connecting.timeout_s * _FAST_SHARE

    def _check_returned(
        self, delta: FetchDelta, requested: Set[TopicPartition], returned: Collection[TopicPartition]
    ) -> None:
        """Raise RetriableError if a partition is unrequested or duplicated, or missing from a full response."""
        found = set(returned)
        is_complete = found == requested if delta.is_full else found <= requested
        if not is_complete or len(returned) != len(found):
            self._session.reset()
            raise RetriableError(
                f"broker {self.endpoint} did not return the requested partitions exactly once: not returned "
                f"[{_join_names(requested - found)}], not requested [{_join_names(found - requested)}]"
            )

    def list_offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int, *, read_committed: bool | None = None
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Look up offsets by timestamp; return the error code and the offset of each partition.

        Args:
            timestamp: ``EARLIEST``, ``LATEST``, or milliseconds since the epoch.
            read_committed: whether the last stable offset is the end of the log; None for the consumer's setting.

        Raises:
            RetriableError: the broker is unreachable.
        """
        requested = list(partitions)
        request = protocol.list_offsets_request(
            requested,
            timestamp,
            read_committed=self._settings.read_committed if read_committed is None else read_committed,
        )
        found = protocol.parse_list_offsets_response(self._channel.request(request))
        return {partition: found.get(partition, _MISSING) for partition in requested}


def _join_names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
