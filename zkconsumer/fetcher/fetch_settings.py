"""FetchSettings: how fetcher threads fetch records."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from zkconsumer.broker.connect import Connecting
from zkconsumer.config import ConsumerConfig

#: Seconds to wait before a broker is used again after an error that is not retriable, such as failed authentication.
FATAL_ERROR_BACKOFF_S = 5.0


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Settings of the fetcher threads and of the leader finder.

    Attributes:
        connecting: its timeout includes ``max_wait_ms``.
        max_wait_ms: maximum milliseconds that the broker waits for ``min_bytes``.
        min_bytes: bytes of records that the broker collects before it answers.
        partition_max_bytes: maximum bytes of records per partition and fetch response.
        max_bytes: maximum bytes of records per fetch response.
        queued_max_bytes: maximum bytes of records in the queues of all partitions.
        max_decompressed_bytes: maximum decompressed size of a batch in bytes.
        read_committed: do not read records of open and aborted transactions.
        num_fetchers: number of fetcher threads per broker.
        backoff_s: seconds to wait before leaders are looked up again.
    """

    connecting: Connecting
    max_wait_ms: int
    min_bytes: int
    partition_max_bytes: int
    read_committed: bool
    backoff_s: float
    max_decompressed_bytes: int
    max_bytes: int
    queued_max_bytes: int
    num_fetchers: int

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> FetchSettings:
        """Return the settings of a consumer's properties."""
        return cls(
            connecting=dataclasses.replace(
                Connecting.from_config(config), receive_buffer=config.socket_receive_buffer_bytes
            ),
            max_wait_ms=config.fetch_wait_max_ms,
            min_bytes=config.fetch_min_bytes,
            partition_max_bytes=config.fetch_message_max_bytes,
            read_committed=config.read_committed,
            backoff_s=config.refresh_leader_backoff_s,
            max_decompressed_bytes=config.decompressed_batch_max_bytes,
            max_bytes=config.fetch_max_bytes,
            queued_max_bytes=config.queued_max_bytes,
            num_fetchers=config.num_consumer_fetchers,
        )
