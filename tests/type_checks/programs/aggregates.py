"""Aggregations of streams."""

from typing import reveal_type

from zkconsumer.topology import serdes
from zkconsumer.topology.dsl import StreamsBuilder

builder = StreamsBuilder()
sales = builder.stream("sales", key_serde=serdes.STRING, value_serde=serdes.DOUBLE)
grouped = sales.group_by_key()
reveal_type(grouped)  # KGroupedStream[str, float]
reveal_type(grouped.count(store="counts"))  # KTable[str, int]
reveal_type(grouped.reduce(max))  # KTable[str, float]


def collect(key: str, value: float, so_far: list[float]) -> list[float]:
    return [*so_far, value]


reveal_type(grouped.aggregate(list[float], collect))  # KTable[str, list[float]]
reveal_type(sales.group_by(lambda key, value: len(key), key_serde=serdes.LONG))  # KGroupedStream[int, float]
reveal_type(grouped.cogroup(collect).aggregate(list[float]))  # KTable[str, list[float]]
grouped.aggregate(str, collect)  # error: the initial aggregate is a str
grouped.reduce(lambda one, other: str(one))  # error: the result is a str
sales.group_by_key(key_serde=serdes.LONG)  # error: the key is a str
grouped.count().to_stream().to("counts", value_serde=serdes.STRING)  # error: counts are numbers
