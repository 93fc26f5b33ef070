"""How a connection to a broker is secured: TLS, and SASL with PLAIN or SCRAM.

The properties are librdkafka's. The old consumer had none of it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import AuthenticationError, ConfigurationError


@dataclass(frozen=True)
class Security:
    """The settings of one cluster; secrets are left out of its text.

    Attributes:
        protocol: ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``; which listener of a broker is talked to.
        ca_location: a PEM file with the authorities that are trusted; None means the system's.
        certificate_location, key_location, key_password: this client's certificate, where brokers ask for one.
        check_hostname: whether the broker's certificate has to name its host.
        mechanism, username, password: for SASL.

    Raises:
        ConfigurationError: a setting is missing.
    """

    protocol: str = "PLAINTEXT"
    ca_location: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    mechanism: str = "PLAIN"
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, config: ConsumerConfig) -> Security:
        """Return what the properties say."""
        return cls(
            config.security_protocol,
            config.ssl_ca_location,
            config.ssl_certificate_location,
            config.ssl_key_location,
            config.ssl_key_password,
            config.ssl_endpoint_identification_algorithm == "https",
            config.sasl_mechanism,
            config.sasl_username,
            config.sasl_password,
        )

    def __post_init__(self) -> None:
        if self.uses_sasl and not (self.username and self.password):
            raise ConfigurationError(
                f"security.protocol = {self.protocol} needs sasl.username and sasl.password (sasl.mechanism = "
                f"{self.mechanism})"
            )
        if self.uses_tls:
            _ = self._context  # a file that is missing is said now

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether the client has to say who it is."""
        return self.protocol.startswith("SASL")

    @cached_property
    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_location)
            context.check_hostname = self.check_hostname
            if self.certificate_location:
                context.load_cert_chain(self.certificate_location, self.key_location, self.key_password)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"cannot load ssl.ca.location = {self.ca_location!r}, ssl.certificate.location = "
                f"{self.certificate_location!r}, ssl.key.location = {self.key_location!r}: {error}"
            ) from error
        return context

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_context"}  # it cannot be pickled

    def wrap(self, sock: socket.socket, host: str) -> ssl.SSLSocket:
        """Return the socket to talk through, before the handshake."""
        return self._context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)

    @staticmethod
    def shake_hands(sock: ssl.SSLSocket, host: str) -> None:
        """Agree on keys.

        Raises:
            AuthenticationError: the broker's certificate does not fit.
        """
        try:
            sock.do_handshake()
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationError(
                f"the certificate of broker {host} is not trusted: {error.verify_message}; check ssl.ca.location and "
                "ssl.endpoint.identification.algorithm"
            ) from error

    def authenticate(self, request: Callable[[Any], Any], host: str) -> None:
        """Say who we are, by requests on a fresh connection.

        Raises:
            AuthenticationError: the broker does not believe it; the password is not in the text.
        """
        if not self.uses_sasl:
            return
        answer = request(SaslHandshakeRequest(mechanism=self.mechanism, version=1))
        if answer.error_code:
            raise AuthenticationError(
                f"broker {host} does not have sasl.mechanism = {self.mechanism}; it has {', '.join(answer.mechanisms)}"
            )
        client = get_sasl_mechanism(self.mechanism)(
            host=host,
            security_protocol=self.protocol,
            sasl_mechanism=self.mechanism,
            sasl_plain_username=self.username,
            sasl_plain_password=self.password,
        )
        while not client.is_done():
            token = client.auth_bytes()
            answer = request(SaslAuthenticateRequest(auth_bytes=token, version=0))
            if answer.error_code:
                raise AuthenticationError(
                    f"broker {host} refuses user {self.username!r} by {self.mechanism}: {answer.error_message}"
                )
            try:
                client.receive(bytes(answer.auth_bytes))
            except Exception as error:  # the mechanisms raise whatever they like for a proof that is none
                raise AuthenticationError(f"broker {host} could not prove itself by {self.mechanism}") from error


PLAINTEXT = Security()
