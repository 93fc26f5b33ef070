"""Exposes a consumer's metrics through prometheus_client (requires the ``prometheus`` extra).

::

    from prometheus_client import REGISTRY, start_http_server
    REGISTRY.register(ConsumerCollector(consumer))
    start_http_server(8000)

``kafka.consumer:type=ConsumerFetcherManager,name=MaxLag,clientId=c`` becomes
``kafka_consumer_ConsumerFetcherManager_MaxLag{clientId="c"}``. Attributes other than ``Value`` are appended to the
name. ``Count`` becomes a counter whose name ends in ``_total``. A collector for several consumers adds the label
``consumerId``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from zkconsumer.argument_checks import check_attribute
from zkconsumer.metrics import MetricsSource
from zkconsumer.optional_packages import check_package

check_package("prometheus", "prometheus_client", __name__)

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: E402
from prometheus_client.registry import Collector  # noqa: E402


class ConsumerCollector(Collector):  # type: ignore[misc]
    """Reads the metrics of one or more consumers on each scrape."""

    def __init__(self, *consumers: MetricsSource) -> None:
        for consumer in consumers:
            check_attribute(
                "each of the consumers",
                consumer,
                "metrics",
                "a consumer, a StreamsApp or a QueryListener",
            )
        self._consumers = consumers

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield a metric family for each attribute of each metric."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for consumer in self._consumers:
            for name, attributes in consumer.metrics.items():
                tags = [(key, value) for key, value in name.tags if value]
                if len(self._consumers) > 1:  # consumers may share a client.id
                    tags.append(("consumerId", consumer.consumer_id or ""))
                for attribute, value in attributes.items():
                    end = "" if attribute == "Value" else f"_{attribute}"
                    plain = re.sub(r"\W", "_", f"{name.group}_{name.type}_{name.name}{end}")
                    # A metric family has one set of labels, whereas the tags in a JMX name can be optional.
                    key = "/".join([plain, *(tag for tag, _ in tags)])
                    if key not in families:
                        kind = CounterMetricFamily if attribute == "Count" else GaugeMetricFamily
                        families[key] = kind(plain, str(name), labels=[tag for tag, _ in tags])
                    families[key].add_metric([value for _, value in tags], value)
        merged: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for family in families.values():
            merged.setdefault(family.name, family)
            if merged[family.name] is not family:
                merged[family.name].samples += family.samples
        yield from merged.values()


__all__ = ["ConsumerCollector"]
