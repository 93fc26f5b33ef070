"""Stateful stream processing: a count per key by this package, Kafka Streams and other frameworks."""
