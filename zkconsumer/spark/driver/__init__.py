"""What runs in Spark's driver: the query listener, which commits offsets of finished batches, and metrics.

Threads of Spark's listener bus and one timer thread run it. ``zkconsumer.spark.register`` starts it.
"""
