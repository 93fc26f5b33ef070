"""Counts the words in a topic of text lines.

The words become the keys, so they are written to a repartition topic. All occurrences of a word are then in the same
partition.

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
        source: input topic, whose values are lines of text.
        sink: output topic, whose keys are words and whose values are counts as 64-bit integers.
    """
    builder = StreamsBuilder()
    words = builder.stream(source, value_serde=serdes.STRING).flat_map_values(split_words)
    counts = words.group_by(get_word, key_serde=serdes.STRING, value_serde=serdes.STRING).count(store="counts")
    counts.to_stream().to(sink)
    return builder.build()
