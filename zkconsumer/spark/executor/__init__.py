"""Code that runs in Spark tasks: reads the ranges of a batch into Arrow batches.

A task uses the fetcher threads of ``fetcher``, and imports neither ``rebalance`` nor ``zookeeper``.
"""
