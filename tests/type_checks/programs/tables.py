"""Tables."""

from typing import reveal_type

from zkconsumer.topology import serdes
from zkconsumer.topology.dsl import StreamsBuilder

builder = StreamsBuilder()
users = builder.table("users", key_serde=serdes.STRING, value_serde=serdes.JSON)
ages = builder.table("ages", key_serde=serdes.STRING, value_serde=serdes.LONG)
reveal_type(ages)  # KTable[str, int]
reveal_type(ages.filter(lambda name, age: age > 17))  # KTable[str, int]
reveal_type(ages.map_values(str))  # KTable[str, str]
reveal_type(ages.map_values(lambda name, age: (name, age), with_key=True))  # KTable[str, tuple[str, int]]
reveal_type(ages.to_stream())  # KStream[str, int]
reveal_type(ages.to_stream(lambda name, age: age))  # KStream[int, int]
by_age = ages.group_by(lambda name, age: (age, name))
reveal_type(by_age)  # KGroupedTable[int, str]
reveal_type(by_age.count())  # KTable[int, int]
reveal_type(ages.join(users, lambda age, user: (age, str(user))))  # KTable[str, tuple[int, str]]
reveal_type(ages.left_join(ages, lambda one, other: other))  # KTable[str, int]
ages.left_join(ages, lambda one, other: one + other)  # error: there may be no other value
ages.outer_join(ages, lambda one, other: abs(one))  # error: there may be no value
ages.map_values(str.upper)  # error: the value is a number
builder.table("t", key_serde=str)  # error
