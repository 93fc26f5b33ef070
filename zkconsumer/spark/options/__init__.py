"""Options of the Spark source: declaration, parsing, and validation against the cluster.

The driver and the planning process parse them. Used by ``source``, ``batch`` and ``dstreams``.
"""
