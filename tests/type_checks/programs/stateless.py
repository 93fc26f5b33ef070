"""Steps without state."""

from typing import reveal_type

from zkconsumer.topology import serdes
from zkconsumer.topology.dsl import StreamsBuilder

builder = StreamsBuilder()
lines = builder.stream("lines", key_serde=serdes.LONG, value_serde=serdes.STRING)
reveal_type(lines)  # KStream[int, str]
reveal_type(lines.filter(lambda key, value: key > 1 and value.isdigit()))  # KStream[int, str]
reveal_type(lines.flat_map_values(str.split))  # KStream[int, str]
reveal_type(lines.map_values(len))  # KStream[int, int]
reveal_type(lines.map_values(lambda key, value: (value, key), with_key=True))  # KStream[int, tuple[str, int]]
reveal_type(lines.map(lambda key, value: (value, float(key))))  # KStream[str, float]
reveal_type(lines.select_key(lambda key, value: value))  # KStream[str, str]
reveal_type(lines.split().branch(lambda key, value: bool(value)).default_branch())  # dict[str, KStream[int, str]]
reveal_type(builder.stream("untyped"))  # KStream[Any, Any]
lines.filter(lambda key, value: value > 1)  # error: the value is a str
lines.map_values(abs)  # error: the value is a str
lines.merge(lines.map_values(len))  # error: the values differ
lines.to("out", value_serde=serdes.LONG)  # error: the value is a str
lines.map_values(len).to("lengths", value_serde=serdes.LONG)
