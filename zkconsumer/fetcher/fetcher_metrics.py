"""FetcherMetrics: the metrics of one fetcher thread, under the names of the JVM consumer."""

from __future__ import annotations

from zkconsumer.message import Endpoint
from zkconsumer.metrics import Metrics


class FetcherMetrics:
    """Rates, sizes and times of the fetch requests to one broker."""

    def __init__(self, metrics: Metrics, client_id: str, endpoint: Endpoint) -> None:
        broker = {"clientId": client_id, "brokerHost": endpoint.host, "brokerPort": endpoint.port}
        all_tags = ({"clientId": client_id}, broker)
        group = "kafka.consumer", "FetchRequestAndResponseMetrics"
        self._metrics, self._client_id = metrics, client_id
        self.requests = metrics.meter("kafka.server", "FetcherStats", "RequestsPerSec", **broker)
        self._bytes = metrics.meter("kafka.server", "FetcherStats", "BytesPerSec", **broker)
        self._times = [metrics.timer(*group, "FetchRequestRateAndTimeMs", **tags) for tags in all_tags]
        self._sizes = [metrics.histogram(*group, "FetchResponseSize", **tags) for tags in all_tags]
        self._throttles = [metrics.timer(*group, "FetchRequestThrottleRateAndTimeMs", **tags) for tags in all_tags]

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
            self._metrics.meter(
                "kafka.consumer", "ConsumerTopicMetrics", "BytesPerSec", clientId=self._client_id, **tags
            ).mark(size)
