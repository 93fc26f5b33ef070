"""Windowed aggregations."""

from datetime import timedelta
from typing import reveal_type

from zkconsumer.topology import ApplicationConfig, serdes
from zkconsumer.topology.dsl import Materialized, StreamsBuilder, UntilTimeLimit, UntilWindowCloses, time_windowed
from zkconsumer.topology.windows import SessionWindows, TimeWindows

clicks = StreamsBuilder().stream("clicks", key_serde=serdes.STRING, value_serde=serdes.STRING)
windowed = clicks.group_by_key().windowed_by(TimeWindows(size_ms=1_000))
reveal_type(windowed)  # WindowedKStream[str, str]
counts = windowed.count()
reveal_type(counts)  # KTable[Windowed[str], int]
stream = counts.suppress(UntilWindowCloses()).to_stream()
reveal_type(stream)  # KStream[Windowed[str], int]
reveal_type(stream.map(lambda window, count: (window.key, window.end - count)))  # KStream[str, int]
stream.to("counts", key_serde=time_windowed(serdes.STRING, 1_000), value_serde=serdes.LONG)
stream.to("counts", key_serde=serdes.STRING)  # error: keys are windowed
sessions = clicks.group_by_key().windowed_by(SessionWindows(gap_ms=5))
reveal_type(sessions.reduce(lambda one, other: one + other))  # KTable[Windowed[str], str]
sessions.aggregate(int, lambda key, value, size: size + len(value), lambda key, one, other: key)  # error

minutes = TimeWindows(size_ms=timedelta(minutes=1), grace_ms=5_000)
reveal_type(minutes.size_ms)  # int
reveal_type(minutes.advance_ms)  # int | None
TimeWindows(grace_ms=timedelta(minutes=1))  # error: size_ms is missing
TimeWindows(size_ms=1.5)  # error
UntilTimeLimit(wait_ms=timedelta(seconds=1), max_records=1)
UntilTimeLimit(wait_ms="1s")  # error
reveal_type(Materialized("store", retention_ms=timedelta(hours=1)).retention_ms)  # int | None
reveal_type(ApplicationConfig(max_task_idle_ms=timedelta(seconds=1)).emit_interval_ms)  # int
ApplicationConfig(emit_interval_ms="1s")  # error
