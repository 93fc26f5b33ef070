"""Stateful stream processing: zkconsumer, Kafka Streams and other frameworks count records by key."""
