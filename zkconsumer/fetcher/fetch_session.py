"""FetchSession: Fetch requests that contain only the changes since the previous request (KIP-227).

Without a session, a consumer with many partitions sends the same offsets repeatedly even if most partitions have no new
records. With a session, the broker remembers the partitions, and returns only partitions with records, errors or a new
high watermark.

Source: Kafka 4.3 org.apache.kafka.clients.FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkconsumer.broker.fetch_request import Position
from zkconsumer.broker.protocol import FetchResult
from zkconsumer.message import TopicPartition

FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH = 70, 71

_NO_SESSION = 0
_INITIAL_EPOCH, _FINAL_EPOCH = 0, -1
_LAST_EPOCH = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class FetchDelta:
    """Session and partitions of one Fetch request.

    Attributes:
        positions: partitions that are new or whose position changed; all partitions if ``is_full``.
        forgotten: partitions that the broker should no longer return.
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
    """Fetch session between a fetcher and its broker; used by the fetcher thread.

    Brokers before Kafka 1.1, and brokers with a full session cache, do not create a session. Each request then contains
    all partitions.

    Args:
        is_requested: whether to request a session. Fetchers that send only a few requests should not request one,
            because a broker caches only 1,000 sessions by default (``max.incremental.fetch.session.cache.slots``).
    """

    def __init__(self, *, is_requested: bool) -> None:
        self._first_epoch = _INITIAL_EPOCH if is_requested else _FINAL_EPOCH
        self._id = _NO_SESSION
        self._epoch = self._first_epoch
        self._sent: dict[TopicPartition, Position] = {}

    def delta(self, wanted: Mapping[TopicPartition, Position]) -> FetchDelta:
        """Return the session and partitions for the next request, given the positions to fetch."""
        if self._epoch == self._first_epoch:
            return FetchDelta(self._id, self._epoch, wanted)
        sent = self._sent
        changed = {partition: position for partition, position in wanted.items() if sent.get(partition) != position}
        return FetchDelta(self._id, self._epoch, changed, frozenset(sent.keys() - wanted.keys()))

    def update(self, wanted: Mapping[TopicPartition, Position], result: FetchResult) -> None:
        """Record that the broker processed the request for the ``wanted`` positions."""
        if result.session_id == _NO_SESSION:
            self._id, self._epoch, self._sent = _NO_SESSION, self._first_epoch, {}
            return
        self._id = result.session_id
        self._epoch = self._epoch % _LAST_EPOCH + 1
        self._sent = dict(wanted)

    def reset(self) -> None:
        """Start over with a full request, which also ends the broker's previous session."""
        self._epoch, self._sent = self._first_epoch, {}
