"""Code that runs in Spark's driver: metrics, and the driver listener, which commits the offsets of finished batches.

Spark's listener bus passes events to a thread of the driver listener. ``zkconsumer.spark.register`` starts the
listener.
"""
