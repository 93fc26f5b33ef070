"""Windowed aggregations."""

from typing import reveal_type

from zkconsumer.topology import serdes
from zkconsumer.topology.dsl import StreamsBuilder, UntilWindowCloses, time_windowed
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
