"""Plans the batches of a streaming query, in the planning process that Spark starts for its source.

Spark's thread calls ``Planner``; the member thread of ``rebalance`` assigns partitions to it. ``source`` and
``dstreams`` use it.
"""
