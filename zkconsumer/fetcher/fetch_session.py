"""FetchSession: Fetch requests that contain only what changed since the last one (KIP-227).

A consumer with many partitions sends the same offsets again and again while most of them have no new records. With a
session, the broker remembers the partitions, and returns only those with records, errors or another high watermark.

Source: Kafka 4.3 org.apache.kafka.clients.FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkconsumer.broker.protocol import FetchResult
from zkconsumer.message import TopicPartition

FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH = 70, 71

_NO_SESSION = 0
_INITIAL_EPOCH, _FINAL_EPOCH = 0, -1
_LAST_EPOCH = (1 << 31) - 1

#: Next offset and maximum bytes of a partition.
Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FetchDelta:
    """The session and the partitions of one request.

    Attributes:
        positions: partitions that are new, or whose position changed; all of them if ``is_full``.
        forgotten: partitions that the broker shall no longer return.
    """

    session_id: int
    epoch: int
    positions: Mapping[TopicPartition, Position]
    forgotten: frozenset[TopicPartition] = field(default=frozenset())

    @property
    def is_full(self) -> bool:
        """Whether the response contains all partitions."""
        return self.epoch in (_INITIAL_EPOCH, _FINAL_EPOCH)


class FetchSession:
    """The session of one fetcher with its broker. Used by the fetcher's thread.

    Brokers before Kafka 1.1, and those whose session cache is full, create no session. Then each request names all
    partitions.

    Args:
        is_requested: whether to request a session. A broker caches 1,000 sessions by default
            (``max.incremental.fetch.session.cache.slots``), too few for fetchers that send only some requests.
    """

    def __init__(self, *, is_requested: bool) -> None:
        self._first_epoch = _INITIAL_EPOCH if is_requested else _FINAL_EPOCH
        self._id = _NO_SESSION
        self._epoch = self._first_epoch
        self._sent: dict[TopicPartition, Position] = {}

    def delta(self, wanted: Mapping[TopicPartition, Position]) -> FetchDelta:
        """Return what the next request has to contain so that the broker returns the wanted partitions."""
        if self._epoch == self._first_epoch:
            return FetchDelta(self._id, self._epoch, wanted)
        sent = self._sent
        changed = {partition: position for partition, position in wanted.items() if sent.get(partition) != position}
        return FetchDelta(self._id, self._epoch, changed, frozenset(sent.keys() - wanted.keys()))

    def update(self, wanted: Mapping[TopicPartition, Position], result: FetchResult) -> None:
        """Record that the broker has processed the request for the wanted partitions."""
        if result.session_id == _NO_SESSION:
            self._id, self._epoch, self._sent = _NO_SESSION, self._first_epoch, {}
            return
        self._id = result.session_id
        self._epoch = self._epoch % _LAST_EPOCH + 1
        self._sent = dict(wanted)

    def reset(self) -> None:
        """Start again with a full request, which also ends the previous session of the broker."""
        self._epoch, self._sent = self._first_epoch, {}
