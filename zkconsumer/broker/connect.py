"""Connecting: what connections to the brokers of a cluster have in common."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.security import Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.message import Endpoint


@dataclass(frozen=True, slots=True)
class Connecting:
    """How a client connects to brokers.

    ``security`` has no default, so that a forgotten argument does not cause a connection without encryption.

    Attributes:
        client_id: sent with each request.
        timeout_s: maximum seconds for a request, from the name resolution to the last byte of the response.
        receive_buffer: size of the socket's receive buffer in bytes; -1 for the default of the operating system.
    """

    client_id: str
    timeout_s: float
    security: Security
    receive_buffer: int = -1

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> Connecting:
        """Return the settings in a consumer's properties; ``socket.receive.buffer.bytes`` applies to fetches only."""
        return cls(config.client_id, config.socket_timeout_s, Security.from_config(config))

    def with_timeout(self, timeout_s: float) -> Connecting:
        """Return these settings with another timeout."""
        return dataclasses.replace(self, timeout_s=timeout_s)

    def channel(self, endpoint: Endpoint) -> BrokerChannel:
        """Create a channel to a broker, which connects at its first request."""
        return BrokerChannel(endpoint, self.client_id, self.timeout_s, self.receive_buffer, self.security)
