"""Code that runs in Spark's driver: the query listener, which commits the offsets of finished batches, and metrics.

Spark's listener bus passes events to a thread of the query listener. ``zkconsumer.spark.register`` starts the listener.
"""
