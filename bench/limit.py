"""Measures how fast one Python process can receive the records of a topic without decoding them.

It contains two clients of ``bench.plain``. One thread per broker fetches all partitions that the broker leads, with one
request at a time, and receives each response into the same buffer. Of the records, it reads only the batch headers, to
find the offset of the next request. The other client also checks the CRCs, and decodes the records into the same column
buffers again and again. The measurement starts before the first request.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

from bench.clock import Clock
from bench.plain import FETCH_BYTES
from zkconsumer.fetcher.chunk import NO_LIMIT
from zkconsumer.fetcher.column_buffers import ColumnBuffers
from zkconsumer.fetcher.decode import MAX_BYTES, MAX_ROWS
from zkconsumer.fetcher.native import native
from zkconsumer.fetcher.record_format import CHECK_CRC, Segment

_FETCH, _VERSION, _CLIENT = 1, 4, b"bench"
_MAX_WAIT_MS, _MAX_RESPONSE = 100, 50 << 20
_HEADER = struct.Struct(f">hhih{len(_CLIENT)}s")
#: Number, error, high watermark, last stable offset, and number of aborted transactions.
_PARTITION = struct.Struct(">ihqqi")
_ANY_OFFSET = -1 << 63
_MICROSECONDS_PER_MILLISECOND = 1000


class BrokerReader:
    """Reads the partitions of one broker.

    Args:
        address: host and port.
        topic: topic name.
        partitions: numbers of the partitions that the broker leads.
        decodes: whether to check and decode the records, which must not be compressed.
    """

    def __init__(self, address: tuple[str, int], topic: str, partitions: list[int], *, decodes: bool) -> None:
        self._socket = socket.create_connection(address, timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._topic = topic.encode()
        self._offsets = dict.fromkeys(partitions, 0)
        self._columns = ColumnBuffers(MAX_ROWS, MAX_BYTES, None) if decodes else None
        self._buffer = memoryview(bytearray(min(len(partitions) * FETCH_BYTES, _MAX_RESPONSE) + 2 * FETCH_BYTES))

    def read(self) -> Iterator[int]:
        """Fetch without end; yield the number of records in each response."""
        while True:
            self._send()
            yield self._parse(self._receive())

    def _send(self) -> None:
        head = _HEADER.pack(_FETCH, _VERSION, 0, len(_CLIENT), _CLIENT)
        body = struct.pack(">iiiibi", -1, _MAX_WAIT_MS, 1, _MAX_RESPONSE, 0, 1)
        body += struct.pack(">h", len(self._topic)) + self._topic + struct.pack(">i", len(self._offsets))
        body += b"".join(struct.pack(">iqi", *position, FETCH_BYTES) for position in self._offsets.items())
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)

    def _receive(self) -> memoryview:
        self._fill(self._buffer[:4])
        response = self._buffer[: struct.unpack_from(">i", self._buffer)[0]]
        self._fill(response)
        return response

    def _fill(self, view: memoryview) -> None:
        filled = 0
        while filled < len(view):
            received = self._socket.recv_into(view[filled:])
            if not received:
                raise ConnectionError("the broker closed the connection")
            filled += received

    def _parse(self, response: memoryview) -> int:
        at = 12 + 2 + len(self._topic)  # correlation id, throttle time, number of topics, topic
        (count,) = struct.unpack_from(">i", response, at)
        at += 4
        records, read = 0, []
        for _ in range(count):
            number, error, _, _, aborted = _PARTITION.unpack_from(response, at)
            at += _PARTITION.size + 16 * max(0, aborted)
            (size,) = struct.unpack_from(">i", response, at)
            at += 4
            if error:
                raise RuntimeError(f"error {error} for partition {number}")
            offset = self._offsets[number]
            encoded = response[at : at + size]
            following, complete, _ = native.next_offset(encoded, _ANY_OFFSET, offset, NO_LIMIT)
            if self._columns is not None:
                _decode(encoded, self._columns)
            at += max(0, size)
            if complete:
                records += following - offset
                self._offsets[number] = following
                read.append(number)
        for number in read:  # the broker fills the response in the order of the request
            self._offsets[number] = self._offsets.pop(number)
        return records


def _decode(encoded: memoryview, columns: ColumnBuffers) -> None:
    """Decode the batches of a partition, up to ``MAX_BYTES`` at a time."""
    at = 0
    while True:
        found = native.scan(encoded, at, _ANY_OFFSET, NO_LIMIT, MAX_ROWS, MAX_BYTES, CHECK_CRC)
        if found is None:
            return
        run = Segment(*found)
        columns.state[:] = bytes(len(columns.state))
        failed = native.decode(
            *(encoded, run.begin, run.end, run.magic, 0, 0, 0, 0, -1, _ANY_OFFSET, NO_LIMIT),
            *(_MICROSECONDS_PER_MILLISECOND, columns.state, columns.columns, None),
        )
        if failed >= 0:
            raise RuntimeError(f"corrupt batch at byte {failed}")
        at = run.end


def find_leaders(brokers: str, topic: str) -> dict[tuple[str, int], list[int]]:
    """Return the partitions of the topic by the address of their leader."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(bootstrap_servers=brokers.split(","))
    try:
        consumer.partitions_for_topic(topic)
        cluster = consumer._client.cluster
        found: dict[tuple[str, int], list[int]] = {}
        for number in sorted(cluster.partitions_for_topic(topic)):
            leader = cluster.broker_metadata(cluster._partitions[topic][number].leader_id)
            found.setdefault((leader.host, leader.port), []).append(number)
    finally:
        consumer.close()
    return found


def run(brokers: str, topic: str, records: int, *, decodes: bool) -> dict[str, float]:
    """Read the topic once; see ``BrokerReader``."""
    clock, lock, done = Clock(), threading.Lock(), threading.Event()
    errors: list[BaseException] = []

    def read(reader: BrokerReader) -> None:
        try:
            for count in reader.read():
                with lock:
                    if count and clock.count(count) >= records:
                        done.set()
                if done.is_set():
                    return
        except BaseException as error:
            errors.append(error)
            done.set()

    readers = [
        BrokerReader(address, topic, numbers, decodes=decodes)
        for address, numbers in find_leaders(brokers, topic).items()
    ]
    threads = [threading.Thread(target=read, args=(reader,), daemon=True) for reader in readers]
    clock.start()
    for thread in threads:
        thread.start()
    done.wait()
    for error in errors:
        raise error
    return clock.result()
