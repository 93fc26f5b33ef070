"""One group of JVM old consumers, of ours and of Spark queries, on real servers."""
