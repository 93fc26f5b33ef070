"""FetcherMetrics: what a fetcher thread measures."""

from __future__ import annotations

from zkconsumer.message import Endpoint
from zkconsumer.metrics import Metrics


class FetcherMetrics:
    """What is counted of the talk with one broker."""

    def __init__(self, metrics: Metrics, client_id: str, endpoint: Endpoint) -> None:
        where = {"clientId": client_id, "brokerHost": endpoint.host, "brokerPort": endpoint.port}
        both = ({"clientId": client_id}, where)
        talk = "kafka.consumer", "FetchRequestAndResponseMetrics"
        self._metrics, self._client_id = metrics, client_id
        self.requests = metrics.meter("kafka.server", "FetcherStats", "RequestsPerSec", **where)
        self._bytes = metrics.meter("kafka.server", "FetcherStats", "BytesPerSec", **where)
        self._times = [metrics.timer(*talk, "FetchRequestRateAndTimeMs", **tags) for tags in both]
        self._sizes = [metrics.histogram(*talk, "FetchResponseSize", **tags) for tags in both]
        self._throttles = [metrics.timer(*talk, "FetchRequestThrottleRateAndTimeMs", **tags) for tags in both]

    def fetched(self, seconds: float, size: int, throttled: float) -> None:
        """A request was answered."""
        self.requests.mark()
        self._bytes.mark(size)
        for time_, size_, throttle in zip(self._times, self._sizes, self._throttles, strict=True):
            time_.update(seconds)
            size_.update(size)
            throttle.update(throttled)

    def enqueued(self, topic: str, size: int) -> None:
        """Records were put into a queue."""
        for tags in ({}, {"topic": topic}):
            self._metrics.meter(
                "kafka.consumer", "ConsumerTopicMetrics", "BytesPerSec", clientId=self._client_id, **tags
            ).mark(size)
