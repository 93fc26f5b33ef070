"""Serdes of built-in and of own types."""

from typing import reveal_type

from zkconsumer.topology import serdes
from zkconsumer.topology.dsl import session_windowed, time_windowed
from zkconsumer.topology.serdes import Serde


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


def to_bytes(topic: str, point: Point) -> bytes:
    return str(point.x).encode()


def from_bytes(topic: str, data: bytes | None) -> Point | None:
    return None if data is None else Point(int(data))


reveal_type(serdes.STRING)  # Serde[str]
reveal_type(serdes.DOUBLE.deserialize("t", b""))  # float | None
reveal_type(serdes.JSON)  # Serde[Any]
reveal_type(time_windowed(serdes.LONG, 10))  # Serde[Windowed[int]]
reveal_type(session_windowed(serdes.STRING))  # Serde[Windowed[str]]
points = Serde(to_bytes, from_bytes)
reveal_type(points)  # Serde[Point]
points.serialize("t", "a point")  # error
strings: Serde[str] = serdes.LONG  # error
mixed: Serde[Point] = Serde(to_bytes, serdes.STRING.deserialize)  # error
