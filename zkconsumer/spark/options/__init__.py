"""The options of the Spark source: declarations, parsing, and checks against the cluster.

They are parsed in the driver and in the planning process. ``source``, ``batch`` and ``dstreams`` use them.
"""
