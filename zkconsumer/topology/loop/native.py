"""Record processing of a task: compiled, or in Python if ``ZKCONSUMER_PURE=1`` is set; see ``loop_py``.

See docs/decisions/29-compiled-loop.rst. See docs/decisions/34-c-instead-of-cython.rst.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zkconsumer.topology.loop.headers import MAX_TIMESTAMP as NEVER
from zkconsumer.version import IS_PURE, explain_missing_module

if TYPE_CHECKING or IS_PURE:
    from zkconsumer.topology.loop.aggregator_py import RecordAggregator, WindowAggregator
    from zkconsumer.topology.loop.cache_py import CacheEntries, RecordCache, forward_changes
    from zkconsumer.topology.loop.loop_py import (
        Deserialize,
        Forwarder,
        Guarded,
        OutputColumns,
        Record,
        RunState,
        Serialize,
        SinkWriter,
        has_negative,
        read_column,
        run_rows,
    )
else:
    try:
        from zkconsumer.topology.loop._loop import (
            CacheEntries,
            Deserialize,
            Forwarder,
            Guarded,
            OutputColumns,
            Record,
            RecordAggregator,
            RecordCache,
            RunState,
            Serialize,
            SinkWriter,
            WindowAggregator,
            forward_changes,
            has_negative,
            read_column,
            run_rows,
        )
    except ImportError as error:
        raise ImportError(explain_missing_module()) from error

#: Callable that processes a record: a node, or the function that a node calls.
Process = Callable[[Record], object]

__all__ = [
    "NEVER",
    "CacheEntries",
    "Deserialize",
    "Forwarder",
    "Guarded",
    "OutputColumns",
    "Process",
    "Record",
    "RecordAggregator",
    "RecordCache",
    "RunState",
    "Serialize",
    "SinkWriter",
    "WindowAggregator",
    "forward_changes",
    "has_negative",
    "read_column",
    "run_rows",
]
