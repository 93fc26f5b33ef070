"""Topologies on Spark: ``StreamsApp`` and its query in the driver, and the tasks in an operator with state.

A worker imports neither ``app`` nor ``query``.
"""
