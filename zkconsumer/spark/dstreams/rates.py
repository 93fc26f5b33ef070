"""Limits on the records of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext

from zkconsumer.message import TopicPartition
from zkconsumer.spark.driver.admission import fair_shares


class Rates:
    """The limits of a source: those of the configuration, and what back-pressure makes of them.

    Source: Spark 2.4 RateController, DirectKafkaInputDStream.maxMessagesPerPartition.
    """

    _by_key: dict[str, Rates] = {}

    def __init__(self, sc: SparkContext, seconds: float, limit: str) -> None:
        conf = sc.getConf()
        self._seconds = seconds
        self._most = float(conf.get(limit, "0") or 0)
        self._rate = float(conf.get("spark.streaming.backpressure.initialRate", "0") or 0)
        self._estimator: Any = None
        if conf.get("spark.streaming.backpressure.enabled", "false").lower() == "true":
            jvm = sc._jvm
            assert jvm is not None
            jconf = sc._jsc.sc().conf()
            duration = jvm.org.apache.spark.streaming.Duration(int(self._seconds * 1000))
            self._estimator = jvm.org.apache.spark.streaming.scheduler.rate.RateEstimator.create(jconf, duration)
        else:
            self._rate = 0.0

    @classmethod
    def of(cls, key: str, seconds: float, limit: str) -> Rates:
        """Return those of a source; made at its first batch in this process.

        Args:
            seconds: of a batch.
            limit: the property with the configured limit.
        """
        if key not in cls._by_key:
            sc = SparkContext._active_spark_context
            assert sc is not None
            cls._by_key[key] = cls(sc, seconds, limit)
        return cls._by_key[key]

    @classmethod
    def forget(cls, key: str) -> None:
        cls._by_key.pop(key, None)

    def group(self) -> int | None:
        limits = [rate for rate in (self._most, self._rate) if rate > 0]
        return max(1, int(min(limits) * self._seconds)) if limits else None

    def direct(self, waiting: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        shares = dict(waiting)
        if self._rate > 0:
            shares = fair_shares(waiting, max(1, int(self._rate * self._seconds)))
        if self._most > 0:
            most = max(1, int(self._most * self._seconds))
            shares = {partition: min(share, most) for partition, share in shares.items()}
        return shares

    def completed(self, milliseconds: int, records: int, processing: int, scheduling: int) -> None:
        if self._estimator is None:
            return
        found = self._estimator.compute(milliseconds + processing, records, processing, scheduling)
        if found.isDefined():
            self._rate = float(found.get())
