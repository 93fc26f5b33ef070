from zkconsumer.spark.dstreams.sources import DirectSource, GroupSource, Ledger, fetch, follow

__all__ = ["DirectSource", "GroupSource", "Ledger", "fetch", "follow"]
