"""What runs in Spark's tasks: reads the ranges of a batch into Arrow batches.

A task uses the fetcher threads of ``fetcher``. It imports neither ``rebalance`` nor ``zookeeper``.
"""
