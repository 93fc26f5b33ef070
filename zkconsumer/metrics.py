"""Metrics of a consumer, under the JMX names of Kafka's old consumer.

Each consumer has its own ``Metrics``. There is no global registry, so metrics neither outlive their consumer nor are
shared between consumers (KAFKA-1567, KAFKA-3632). Reporters, such as ``zkconsumer.prometheus``, read
``Metrics.snapshot``.

Source: Kafka 1.1 kafka.metrics.KafkaMetricsGroup, com.yammer.metrics.core.
"""

from __future__ import annotations

import enum
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

#: Seconds between two updates of a meter's moving average.
_TICK = 5.0
_ALPHA = 1 - math.exp(-_TICK / 60)

#: Number of most recent values from which a histogram computes all attributes except ``Count``.
_SAMPLES = 1028

_T = TypeVar("_T", "Meter", "Histogram", "Timer")


class MetricName(NamedTuple):
    """Group, type, name and tags of an MBean."""

    group: str
    type: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return the MBean name, without tags that have an empty value."""
        tags = "".join(f",{key}={value}" for key, value in self.tags if value)
        return f"{self.group}:type={self.type},name={self.name}{tags}"


class Kind(enum.Enum):
    """Kinds of metrics; the value lists the MBean attributes."""

    GAUGE = "``Value``"
    METER = "``Count``, ``MeanRate``, ``OneMinuteRate``"
    HISTOGRAM = (
        "``Count``, ``Min``, ``Max``, ``Mean``, ``50thPercentile``, ``75thPercentile``, ``95thPercentile``, "
        "``99thPercentile``"
    )
    TIMER = "histogram attributes in milliseconds, and ``MeanRate``, ``OneMinuteRate``"


@dataclass(frozen=True, slots=True)
class Metric:
    """Declaration of a metric. Each combination of tag values has its own instance.

    Attributes:
        group: MBean group.
        type: MBean type.
        name: MBean name.
        kind: metric kind, which determines the attributes.
        tags: comma-separated tag names; the metric also exists without the tags in brackets.
        meaning: description, one sentence in reStructuredText.
    """

    group: str
    type: str
    name: str
    kind: Kind
    tags: str
    meaning: str

    def named(self, **tags: object) -> MetricName:
        """Return the metric name with the given tag values."""
        return MetricName(self.group, self.type, self.name, tuple((key, str(value)) for key, value in tags.items()))


_declared: list[Metric] = []


def declare(group: str, type_: str, name: str, kind: Kind, tags: str, meaning: str) -> Metric:
    """Declare a metric; see ``Metric``. Called once, by the module that uses the metric."""
    metric = Metric(group, type_, name, kind, tags, meaning)
    _declared.append(metric)
    return metric


def declared_metrics() -> list[Metric]:
    """Return the metrics declared by all imported modules, sorted by name."""
    return sorted(_declared, key=lambda metric: (metric.group, metric.type, metric.name))


class MetricsSource(Protocol):
    """An object with metrics, such as a ``ZookeeperConsumerConnector``."""

    @property
    def consumer_id(self) -> str | None:
        """Consumer id; None before the streams are created."""

    @property
    def metrics(self) -> Mapping[MetricName, Mapping[str, float]]:
        """Attributes by metric: ``Value`` for gauges; ``Count`` and statistics for meters, histograms and timers."""


class Meter:
    """Counts events; rates are events per second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self._started = self._ticked = time.monotonic()
        self._uncounted = 0
        self._rate: float | None = None

    def mark(self, count: int = 1) -> None:
        """Record ``count`` events."""
        with self._lock:
            self._tick()
            self.count += count
            self._uncounted += count

    @property
    def one_minute_rate(self) -> float:
        """One-minute exponentially weighted moving average of the rate."""
        with self._lock:
            self._tick()
            return self._rate or 0.0

    def values(self) -> dict[str, float]:
        """Return the MBean attributes by name."""
        elapsed = max(time.monotonic() - self._started, 1e-9)
        return {"Count": self.count, "MeanRate": self.count / elapsed, "OneMinuteRate": self.one_minute_rate}

    def _tick(self) -> None:
        ticks = int((time.monotonic() - self._ticked) // _TICK)
        if ticks <= 0:
            return
        self._ticked += ticks * _TICK
        rate, self._uncounted = self._uncounted / _TICK, 0
        self._rate = rate if self._rate is None else self._rate + _ALPHA * (rate - self._rate)
        self._rate *= (1 - _ALPHA) ** (ticks - 1)


class Histogram:
    """Distribution of values; ``Count`` covers all values, the other attributes only the last 1,028."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._last: deque[float] = deque(maxlen=_SAMPLES)

    def update(self, value: float) -> None:
        """Record a value."""
        with self._lock:
            self._count += 1
            self._last.append(value)

    def values(self) -> dict[str, float]:
        """Return the MBean attributes by name."""
        with self._lock:
            count, last = self._count, sorted(self._last)
        if not last:
            return {"Count": 0}
        at = {f"{share * 100:g}thPercentile": last[int(share * (len(last) - 1))] for share in (0.5, 0.75, 0.95, 0.99)}
        return {"Count": count, "Min": last[0], "Max": last[-1], "Mean": sum(last) / len(last), **at}


class Timer:
    """Distribution of event durations in milliseconds, and event rate per second."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._histogram = Histogram()

    def update(self, duration_s: float) -> None:
        """Record an event that took ``duration_s`` seconds."""
        self._meter.mark()
        self._histogram.update(duration_s * 1000)

    def values(self) -> dict[str, float]:
        """Return the MBean attributes by name."""
        return {**self._histogram.values(), **self._meter.values()}


class Metrics:
    """Registry of the metrics of one consumer; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metrics: dict[MetricName, Meter | Histogram | Timer] = {}
        self._gauges: list[Callable[[], Iterator[tuple[MetricName, float]]]] = []

    def meter(self, metric: Metric, **tags: object) -> Meter:
        """Return the meter with the given tags, creating it on first use."""
        return self._get(Meter, metric.named(**tags))

    def histogram(self, metric: Metric, **tags: object) -> Histogram:
        """Return the histogram with the given tags, creating it on first use."""
        return self._get(Histogram, metric.named(**tags))

    def timer(self, metric: Metric, **tags: object) -> Timer:
        """Return the timer with the given tags, creating it on first use."""
        return self._get(Timer, metric.named(**tags))

    def register_gauges(self, read: Callable[[], Iterator[tuple[MetricName, float]]]) -> None:
        """Register a function that yields gauges and their values; it is called for each snapshot."""
        self._gauges.append(read)

    def snapshot(self) -> dict[MetricName, dict[str, float]]:
        """Return the current attributes of all metrics."""
        with self._lock:
            metrics = dict(self._metrics)
        values = {name: metric.values() for name, metric in metrics.items()}
        for read in self._gauges:
            values.update({name: {"Value": value} for name, value in read()})
        return values

    def _get(self, kind: type[_T], name: MetricName) -> _T:
        with self._lock:
            metric = self._metrics.get(name)
            if metric is None:
                metric = self._metrics[name] = kind()
        assert isinstance(metric, kind)
        return metric


class TopicMeters:
    """Meters of one metric: one for all topics, and one per topic. They are created on first use. Thread-safe.

    Args:
        metrics: registry of the meters.
        metric: declaration of the meters.
        tags: tags that all meters have, in addition to ``topic``.
    """

    def __init__(self, metrics: Metrics, metric: Metric, **tags: object) -> None:
        self._create = partial(metrics.meter, metric, **tags)
        self._meters: dict[str, tuple[Meter, Meter]] = {}

    def mark(self, topic: str, count: int) -> None:
        """Record ``count`` events of a topic."""
        meters = self._meters.get(topic)
        if meters is None:
            meters = self._meters[topic] = self._create(), self._create(topic=topic)
        for meter in meters:
            meter.mark(count)
