"""Joins of streams."""

from typing import reveal_type

from zkconsumer.topology import serdes
from zkconsumer.topology.dsl import StreamsBuilder
from zkconsumer.topology.windows import JoinWindows

builder = StreamsBuilder()
orders = builder.stream("orders", key_serde=serdes.STRING, value_serde=serdes.LONG)
names = builder.table("names", key_serde=serdes.STRING, value_serde=serdes.STRING)
regions = builder.global_table("regions", key_serde=serdes.LONG, value_serde=serdes.STRING)
reveal_type(regions)  # GlobalKTable[int, str]
reveal_type(orders.join(names, lambda order, name: (order, name)))  # KStream[str, tuple[int, str]]
reveal_type(orders.left_join(names, lambda order, name: name))  # KStream[str, str]
orders.left_join(names, lambda order, name: name).to("out", value_serde=serdes.STRING)
reveal_type(orders.join(regions, lambda order, region: region, key=lambda key, order: order))  # KStream[str, str]
reveal_type(orders.join(names, lambda key, order, name: key + name, with_key=True))  # KStream[str, str]
within = JoinWindows(before_ms=1_000, after_ms=0)
reveal_type(orders.join(orders, lambda one, other: one + other, windows=within))  # KStream[str, int]
orders.join(names, lambda order, name: order + name)  # error: a number and a str
orders.left_join(names, lambda order, name: name.upper())  # error: there may be no name
orders.join(names, lambda order, name: name, windwos=within)  # error
orders.outer_join(names, lambda order, name: name)  # error: not with a table
