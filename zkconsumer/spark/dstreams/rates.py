"""Limits on the number of records per batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext

from zkconsumer.message import TopicPartition
from zkconsumer.spark.planning.batch_limiter import fair_shares


class RateLimits:
    """The rate limits of a source: the configured rate, and the rate that back-pressure computes.

    Rates are in records per second. Zero means no limit.

    Args:
        batch_s: batch interval in seconds.
        rate_property: Spark property that configures the limit.

    Source: Spark 2.4 RateController, DirectKafkaInputDStream.maxMessagesPerPartition.
    """

    def __init__(self, sc: SparkContext, batch_s: float, rate_property: str) -> None:
        conf = sc.getConf()
        self._batch_s = batch_s
        self._configured = float(conf.get(rate_property, "0") or 0)
        self._estimated = 0.0
        self._estimator: Any = None
        if conf.get("spark.streaming.backpressure.enabled", "false").lower() == "true":
            self._estimated = float(conf.get("spark.streaming.backpressure.initialRate", "0") or 0)
            jvm = sc._jvm
            assert jvm is not None
            jconf = sc._jsc.sc().conf()
            duration = jvm.org.apache.spark.streaming.Duration(int(batch_s * 1000))
            self._estimator = jvm.org.apache.spark.streaming.scheduler.rate.RateEstimator.create(jconf, duration)

    def batch_limit(self) -> int | None:
        """Return the maximum number of records per batch; None for no limit.

        The configured rate and the back-pressure rate both apply to the whole source.
        """
        rates = [rate for rate in (self._configured, self._estimated) if rate > 0]
        return max(1, int(min(rates) * self._batch_s)) if rates else None

    def partition_limits(self, lags: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the number of records to read from each partition. The configured rate applies to each partition.

        The back-pressure rate is divided fairly among the partitions, whereas Spark divides it in proportion to the
        lags.

        Args:
            lags: number of offsets between the position and the log end offset of each partition.
        """
        limits = dict(lags)
        if self._estimated > 0:
            limits = fair_shares(lags, max(1, int(self._estimated * self._batch_s)))
        if self._configured > 0:
            limit = max(1, int(self._configured * self._batch_s))
            limits = {partition: min(count, limit) for partition, count in limits.items()}
        return limits

    def update(self, time_ms: int, records: int, processing_delay_ms: int, scheduling_delay_ms: int) -> None:
        """Update the back-pressure rate after a completed batch. All times are in milliseconds."""
        if self._estimator is None:
            return
        rate = self._estimator.compute(time_ms + processing_delay_ms, records, processing_delay_ms, scheduling_delay_ms)
        if rate.isDefined():
            self._estimated = float(rate.get())
