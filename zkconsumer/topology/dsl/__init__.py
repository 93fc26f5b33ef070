"""The Kafka Streams DSL: a ``StreamsBuilder`` builds a ``Topology`` from operations on streams and tables.

Each method of the fluent classes, such as ``stream.KStream`` and ``table.KTable``, adds a step to the builder's graph
(``step_graph``), and ``StreamsBuilder.build`` writes the steps to a topology. A step of a stream is a processor, for
example in ``stateless``. A step whose result is a table has three parts. The operation (``operations``) decides whether
the table has a store, and whether it forwards old values. Downstream steps can require both. The processor (``tables``)
forwards the changes of the table, and updates its store if it has one. The view (``views``) declares how the processors
of other steps read the table: from its store, or from the parent's view. The operation creates the view and the
supplier of the processor. ``table_join_steps`` and ``suppress`` contain all three parts of their steps.
"""

from __future__ import annotations

from zkconsumer.topology.dsl.branches import BranchedKStream
from zkconsumer.topology.dsl.builder import StreamsBuilder
from zkconsumer.topology.dsl.cogrouped_stream import CogroupedKStream
from zkconsumer.topology.dsl.grouped_stream import KGroupedStream
from zkconsumer.topology.dsl.grouped_table import KGroupedTable
from zkconsumer.topology.dsl.materialized import Materialized
from zkconsumer.topology.dsl.optimizer import Optimization
from zkconsumer.topology.dsl.stream import KStream
from zkconsumer.topology.dsl.stream_joins import JoinArguments
from zkconsumer.topology.dsl.suppress import UntilTimeLimit, UntilWindowCloses
from zkconsumer.topology.dsl.table import GlobalKTable, KTable
from zkconsumer.topology.dsl.window_aggregates import Emit
from zkconsumer.topology.dsl.windowed_stream import WindowedKStream
from zkconsumer.topology.windowed_serdes import session_windowed, time_windowed

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
