"""Plans the batches of a streaming query, in the planning process that Spark starts for its source.

Spark's thread calls ``Planner``, and the member thread of ``rebalance`` calls ``QueryMember``. Used by ``source`` and
``dstreams``.
"""
