"""FetchSettings: how fetcher threads fetch records."""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.broker.security import PLAINTEXT, Security
from zkconsumer.config import ConsumerConfig

#: Seconds before a broker that has refused us is asked again.
PAUSE_WHEN_REFUSED = 5.0


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How records are fetched; sizes in bytes, times in seconds where the name does not say milliseconds."""

    client_id: str
    max_wait_ms: int = 100
    min_bytes: int = 1
    partition_max_bytes: int = 1 << 20
    read_committed: bool = False
    socket_timeout: float = 30.0
    receive_buffer: int = -1
    backoff: float = 0.2
    security: Security = PLAINTEXT

    @classmethod
    def of(cls, config: ConsumerConfig) -> FetchSettings:
        """Return what the properties say."""
        return cls(
            client_id=config.client_id or config.group_id,
            max_wait_ms=config.fetch_wait_max_ms,
            min_bytes=config.fetch_min_bytes,
            partition_max_bytes=config.fetch_message_max_bytes,
            read_committed=config.read_committed,
            socket_timeout=config.socket_timeout_ms / 1000,
            receive_buffer=config.socket_receive_buffer_bytes,
            backoff=config.refresh_leader_backoff_ms / 1000,
            security=Security.of(config),
        )
