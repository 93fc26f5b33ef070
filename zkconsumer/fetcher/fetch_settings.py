"""FetchSettings: the settings of fetcher threads."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from zkconsumer.broker.connect import Connecting
from zkconsumer.config import ConsumerConfig

#: Seconds to wait after a non-retriable broker error, such as failed authentication, before the broker is used again.
FATAL_ERROR_BACKOFF_S = 5.0


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Settings of the fetcher threads and of the leader finder.

    Attributes:
        connecting: connection settings; the timeout includes ``fetch_wait_max_ms``.
        fetch_wait_max_ms: maximum milliseconds that the broker waits for ``fetch_min_bytes``.
        fetch_min_bytes: minimum size of the records that the broker collects before it responds, in bytes.
        fetch_message_max_bytes: maximum size of the records per partition in a fetch response, in bytes.
        fetch_max_bytes: maximum size of the records in a fetch response, in bytes.
        queued_max_bytes: maximum total size of the records in all partition queues, in bytes.
        decompressed_batch_max_bytes: maximum decompressed size of a batch, in bytes.
        read_committed: whether to stop reading before the first open transaction, and skip records of aborted
            transactions.
        num_consumer_fetchers: number of fetcher threads per broker.
        refresh_leader_backoff_ms: milliseconds to wait between leader lookups.
    """

    connecting: Connecting
    fetch_wait_max_ms: int
    fetch_min_bytes: int
    fetch_message_max_bytes: int
    read_committed: bool
    refresh_leader_backoff_ms: int
    decompressed_batch_max_bytes: int
    fetch_max_bytes: int
    queued_max_bytes: int
    num_consumer_fetchers: int

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> FetchSettings:
        """Create the settings from consumer properties."""
        return cls(
            connecting=dataclasses.replace(
                Connecting.from_config(config), receive_buffer=config.socket_receive_buffer_bytes
            ),
            fetch_wait_max_ms=config.fetch_wait_max_ms,
            fetch_min_bytes=config.fetch_min_bytes,
            fetch_message_max_bytes=config.fetch_message_max_bytes,
            read_committed=config.read_committed,
            refresh_leader_backoff_ms=config.refresh_leader_backoff_ms,
            decompressed_batch_max_bytes=config.decompressed_batch_max_bytes,
            fetch_max_bytes=config.fetch_max_bytes,
            queued_max_bytes=config.queued_max_bytes,
            num_consumer_fetchers=config.num_consumer_fetchers,
        )
