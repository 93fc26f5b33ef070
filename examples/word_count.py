"""Counts the words of lines.

The words become keys, so they are written to a repartition topic: all occurrences of a word are then in one partition.

Source: Kafka 3.9 org.apache.kafka.streams.examples.wordcount.WordCountDemo.
"""

from __future__ import annotations

from zkconsumer.topology import Topology, serdes
from zkconsumer.topology.dsl import StreamsBuilder


def split_words(line: str) -> list[str]:
    """Return the words of a line in lower case."""
    return line.lower().split()


def get_word(_key: object, word: str) -> str:
    """Return the word, which becomes the key."""
    return word


def create_topology(source: str = "lines", sink: str = "word-counts") -> Topology:
    """Return the topology.

    Args:
        source: topic of the lines.
        sink: topic of the counts. Its keys are words and its values 64-bit integers.
    """
    builder = StreamsBuilder()
    words = builder.stream(source, value_serde=serdes.STRING).flat_map_values(split_words)
    counts = words.group_by(get_word, key_serde=serdes.STRING, value_serde=serdes.STRING).count(store="counts")
    counts.to_stream().to(sink)
    return builder.build()
