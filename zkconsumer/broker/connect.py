"""Connecting: the settings shared by all connections to a cluster's brokers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.security import Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.message import Endpoint


@dataclass(frozen=True, slots=True)
class Connecting:
    """Settings for connections to brokers.

    ``security`` has no default, so that omitting it cannot result in an unencrypted connection.

    Attributes:
        client_id: client id sent with each request.
        timeout_s: maximum seconds for a request, from name resolution to the last byte of the response.
        receive_buffer: socket receive buffer size in bytes; -1 for the operating system's default.
    """

    client_id: str
    timeout_s: float
    security: Security
    receive_buffer: int = -1

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> Connecting:
        """Create the settings from consumer properties; ``socket.receive.buffer.bytes`` applies to fetches only."""
        return cls(config.client_id, config.socket_timeout_s, Security.from_config(config))

    def with_timeout(self, timeout_s: float) -> Connecting:
        """Return a copy with the given timeout."""
        return dataclasses.replace(self, timeout_s=timeout_s)

    def channel(self, endpoint: Endpoint) -> BrokerChannel:
        """Create a channel to a broker; the channel connects on its first request."""
        return BrokerChannel(endpoint, self.client_id, self.timeout_s, self.receive_buffer, self.security)
