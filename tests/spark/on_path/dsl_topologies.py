"""Topologies of the DSL that workers import."""

from __future__ import annotations

from zkconsumer.topology import Topology, serdes
from zkconsumer.topology.dsl import StreamsBuilder


def split_words(line: str) -> list[str]:
    """Return the words of a line."""
    return line.split()


def second(_key: object, word: str) -> str:
    """Return the word."""
    return word


def counting_words(source: str, sink: str) -> Topology:
    """Count the words of lines. The words are written to a repartition topic."""
    builder = StreamsBuilder()
    words = builder.stream(source, value_serde=serdes.STRING).flat_map_values(split_words)
    grouped = words.group_by(second, key_serde=serdes.STRING, value_serde=serdes.STRING)
    grouped.count(store="counts").to_stream().to(sink)
    return builder.build()
