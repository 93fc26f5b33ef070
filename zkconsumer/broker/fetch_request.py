"""FetchRequest: encodes Fetch requests of versions 0 to 12.

A consumer sends a Fetch request for every few chunks of records, so the encoding affects its throughput; kafka-python's
generated classes take several times as long.

Source: the message definitions of Apache Kafka 4.3, clients/src/main/resources/common/message/FetchRequest.json.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from zkconsumer.broker.protocol import CONSUMER_REPLICA_ID, FETCH_FIRST_FLEXIBLE_VERSION, NO_EPOCH, group_by_topic
from zkconsumer.config.types import INT_MAX
from zkconsumer.message import TopicPartition

_NO_OFFSET = -1
_NO_TAGS = b"\0"

_HEADER = struct.Struct(">hhi")
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")

#: Fields of a partition: number, leader epoch (as of version 9), fetch offset, epoch of the last record (as of version
#: 12), log start offset (as of version 5), maximum bytes, and tags (as of version 12).
_PARTITION_V0 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqib")

#: Next offset to fetch and maximum bytes for a partition.
Position = tuple[int, int]


@dataclass(eq=False)
class FetchRequest:
    """A request for records; it has the methods of kafka-python's requests that ``BrokerChannel`` calls.

    As of version 3, the broker returns at least one whole batch, regardless of its size, for the first partition with
    data (KIP-74).

    Attributes:
        positions: next offset and maximum bytes by partition, in the order in which the broker reads the partitions.
        max_wait_ms: maximum milliseconds that the broker waits for ``min_bytes``.
        min_bytes: number of bytes for which the broker waits.
        read_committed: whether the broker returns only records below the last stable offset; applies as of version 4.
        max_bytes: maximum total bytes across all partitions; applies as of version 3.
        session: fetch session id and epoch; no session by default. Applies as of version 7.
        forgotten: partitions to remove from the session.
        API_VERSION: request version; None until it is negotiated.
    """

    positions: Mapping[TopicPartition, Position]
    max_wait_ms: int
    min_bytes: int
    read_committed: bool
    max_bytes: int = INT_MAX
    session: tuple[int, int] = (0, NO_EPOCH)
    forgotten: Iterable[TopicPartition] = ()
    API_VERSION: int | None = None

    # Read by kafka-python's ``BrokerVersionData.api_version``, which chooses the request version:
    name: ClassVar = "FetchRequest"
    API_KEY: ClassVar = 1
    min_version: ClassVar = 0
    max_version: ClassVar = 12  # later versions have topic ids instead of names
    _min_version: ClassVar = None
    _max_version: ClassVar = None

    @property
    def version(self) -> int:
        """Request version, which is known once the request was sent."""
        assert self.API_VERSION is not None
        return self.API_VERSION

    def with_header(self, *, correlation_id: int, client_id: str) -> None:
        """Set the fields of the request header."""
        self._correlation_id, self._client_id = correlation_id, client_id.encode()

    def encode(self, *, framed: bool, header: bool) -> bytes:
        """Return the encoded request.

        Args:
            framed: whether to start with the size of the request.
            header: whether to include the header.
        """
        fields = self._encode_header(self.version) if header else []
        fields += self._encode_body(self.version)
        encoded = b"".join(fields)
        return _INT32.pack(len(encoded)) + encoded if framed else encoded

    def _encode_header(self, version: int) -> list[bytes]:
        tags = _NO_TAGS if version >= FETCH_FIRST_FLEXIBLE_VERSION else b""
        client = self._client_id  # even in flexible versions, the length of the client id is an int16
        return [_HEADER.pack(self.API_KEY, version, self._correlation_id), _INT16.pack(len(client)), client, tags]

    def _encode_body(self, version: int) -> list[bytes]:
        encode_length, encode_string, tags = _encode_length, _encode_string, b""
        if version >= FETCH_FIRST_FLEXIBLE_VERSION:
            encode_length, encode_string, tags = _encode_compact_length, _encode_compact_string, _NO_TAGS
        encode_partition = _choose_partition_encoder(version)
        fields = [struct.pack(">iii", CONSUMER_REPLICA_ID, self.max_wait_ms, self.min_bytes)]
        if version >= 3:
            fields.append(_INT32.pack(self.max_bytes))
        if version >= 4:
            fields.append(b"\1" if self.read_committed else b"\0")
        if version >= 7:
            fields.append(struct.pack(">ii", *self.session))
        topics = _group_adjacent(self.positions)
        fields.append(encode_length(len(topics)))
        for topic, positions in topics:
            fields += encode_string(topic), encode_length(len(positions))
            fields += [encode_partition(partition, *position) for partition, position in positions]
            fields.append(tags)
        if version >= 7:
            forgotten = group_by_topic(self.forgotten)
            fields.append(encode_length(len(forgotten)))
            for topic, partitions in forgotten.items():
                fields += encode_string(topic), encode_length(len(partitions)), *map(_INT32.pack, partitions), tags
        if version >= 11:
            fields.append(encode_string(""))  # rack id
        fields.append(tags)
        return fields


def _group_adjacent(positions: Mapping[TopicPartition, Position]) -> list[tuple[str, list[tuple[int, Position]]]]:
    """Group adjacent partitions of the same topic, without changing the order of the partitions."""
    topics: list[tuple[str, list[tuple[int, Position]]]] = []
    for (topic, partition), position in positions.items():
        if not topics or topics[-1][0] != topic:
            topics.append((topic, []))
        topics[-1][1].append((partition, position))
    return topics


def _choose_partition_encoder(version: int) -> Callable[[int, int, int], bytes]:
    """Return a function that encodes a partition number, a fetch offset and the maximum bytes."""
    if version >= 12:
        return lambda number, offset, size: _PARTITION_V12.pack(number, NO_EPOCH, offset, NO_EPOCH, _NO_OFFSET, size, 0)
    if version >= 9:
        return lambda number, offset, size: _PARTITION_V9.pack(number, NO_EPOCH, offset, _NO_OFFSET, size)
    if version >= 5:
        return lambda number, offset, size: _PARTITION_V5.pack(number, offset, _NO_OFFSET, size)
    return _PARTITION_V0.pack


def _encode_length(count: int) -> bytes:
    return _INT32.pack(count)


def _encode_string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _encode_compact_length(count: int) -> bytes:
    """Encode a length plus one as a varint."""
    rest, encoded = count + 1, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _encode_compact_string(text: str) -> bytes:
    encoded = text.encode()
    return _encode_compact_length(len(encoded)) + encoded
