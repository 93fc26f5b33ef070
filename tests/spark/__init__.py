"""Tests of Spark queries with real brokers: records, committed offsets, and recovery after failures."""
