"""Topologies on Spark: ``StreamsApp`` and its query run in the driver, and the tasks run in a stateful operator.

Workers import neither ``app`` nor ``query``.
"""
