"""FetcherMetrics: the metrics of one fetcher thread, under the Scala consumer's metric names."""

from __future__ import annotations

from zkconsumer.message import Endpoint
from zkconsumer.metrics import Kind, Metrics, declare

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


class FetcherMetrics:
    """Rates, sizes and latencies of the fetch requests to one broker."""

    def __init__(self, metrics: Metrics, client_id: str, endpoint: Endpoint) -> None:
        broker = {"clientId": client_id, "brokerHost": endpoint.host, "brokerPort": endpoint.port}
        all_tags = ({"clientId": client_id}, broker)
        self._metrics, self._client_id = metrics, client_id
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
        for tags in ({}, {"topic": topic}):
            self._metrics.meter(_ENQUEUED, clientId=self._client_id, **tags).mark(size)
