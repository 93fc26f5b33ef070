"""Tests of groups with JVM consumers, zkconsumer and Spark queries, on real servers."""
