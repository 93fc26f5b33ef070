"""The Kafka Streams DSL: a ``StreamsBuilder`` builds a ``Topology`` from operations on streams and tables."""

from __future__ import annotations

from zkconsumer.topology.dsl.branches import BranchedKStream
from zkconsumer.topology.dsl.builder import StreamsBuilder
from zkconsumer.topology.dsl.cogrouped_stream import CogroupedKStream
from zkconsumer.topology.dsl.global_table import GlobalKTable
from zkconsumer.topology.dsl.grouped_stream import KGroupedStream
from zkconsumer.topology.dsl.grouped_table import KGroupedTable
from zkconsumer.topology.dsl.materialized import Materialized
from zkconsumer.topology.dsl.optimizer import Optimization
from zkconsumer.topology.dsl.stream import KStream
from zkconsumer.topology.dsl.stream_joins import JoinArguments
from zkconsumer.topology.dsl.suppress import UntilTimeLimit, UntilWindowCloses
from zkconsumer.topology.dsl.table import KTable
from zkconsumer.topology.dsl.window_aggregates import Emit
from zkconsumer.topology.dsl.windowed_serdes import session_windowed, time_windowed
from zkconsumer.topology.dsl.windowed_stream import WindowedKStream

__all__ = [
    "BranchedKStream",
    "CogroupedKStream",
    "Emit",
    "GlobalKTable",
    "JoinArguments",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "Materialized",
    "Optimization",
    "StreamsBuilder",
    "UntilTimeLimit",
    "UntilWindowCloses",
    "WindowedKStream",
    "session_windowed",
    "time_windowed",
]
