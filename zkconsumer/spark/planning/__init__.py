"""Plans the batches of a streaming query, in the planning process that Spark starts for its source.

``create_planner`` creates a ``Planner`` and its components. Spark's thread calls ``Planner``, and the member thread of
``rebalance`` calls ``QueryMember``. Used by ``source`` and ``dstreams``.
"""
