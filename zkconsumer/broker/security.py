"""Security: TLS and SASL (PLAIN or SCRAM) for connections to brokers.

The security properties have the same names as in librdkafka. The Scala consumer supported plaintext connections only.
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

from zkconsumer.broker.error_codes import error_name
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.properties import SASL_MECHANISMS
from zkconsumer.config.types import join_words
from zkconsumer.errors import AuthenticationError, BrokerUnavailableError, ConfigurationError
from zkconsumer.net.tls import (
    BROKER_PROPERTIES,
    Rejection,
    client_context,
    find_missing_tls,
    find_rejection,
    read_alert,
    server_name,
)

_UNSUPPORTED_SASL_MECHANISM = 33


@dataclass(frozen=True)
class Security:
    """Security settings for connections to brokers; the repr does not contain secrets.

    Attributes:
        protocol: ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``; selects the listener of each broker.
        ca_location: PEM file with trusted certificate authorities; None for the system's trust store.
        certificate_location, key_location, key_password: client certificate and key, if brokers require them.
        check_hostname: whether the broker's certificate must match its host name.
        mechanism, username, password: SASL settings.

    Raises:
        ConfigurationError: a setting is missing, or a file cannot be loaded.
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
    #: Hosts of brokers that accepted the credentials.
    _accepted_by: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> Security:
        """Create the settings from consumer properties."""
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
                f"security.protocol = {self.protocol} requires sasl.username and sasl.password (sasl.mechanism = "
                f"{self.mechanism})"
            )
        if self.uses_tls:
            _ = self._context  # raises now if a file cannot be loaded

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether the client authenticates with SASL."""
        return self.protocol.startswith("SASL")

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return client_context(
            BROKER_PROPERTIES,
            ca_location=self.ca_location,
            certificate_location=self.certificate_location,
            key_location=self.key_location,
            key_password=self.key_password,
            check_hostname=self.check_hostname,
        )

    def __getstate__(self) -> dict[str, Any]:
        # An SSLContext cannot be pickled.
        return {name: value for name, value in self.__dict__.items() if name != "_context"}

    def wrap(self, sock: socket.socket, host: str) -> ssl.SSLSocket:
        """Wrap ``sock`` in a TLS socket, without performing the handshake."""
        return self._context.wrap_socket(sock, server_hostname=server_name(host), do_handshake_on_connect=False)

    def handshake(self, sock: ssl.SSLSocket) -> None:
        """Perform the TLS handshake.

        Raises:
            OSError: the handshake failed; see ``find_rejection``.
        """
        try:
            sock.do_handshake()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError) as error:
            raise ConnectionResetError(
                "the broker closed the connection during the TLS handshake; if this persists, check that the port is a "
                f"{self.protocol} listener"
            ) from error

    def find_rejection(
        self, error: Exception | None, sock: socket.socket | None, received: bytes, peer: str
    ) -> Rejection | None:
        """Return why a new connection was rejected, or None if it may succeed when it is retried.

        Args:
            error: error of the handshake, or of the first request.
            sock: the connection.
            received: bytes of the incomplete first response.
            peer: description of the broker.
        """
        if self.uses_tls:
            return find_rejection(error, peer, BROKER_PROPERTIES) or find_rejection(
                read_alert(sock), peer, BROKER_PROPERTIES
            )
        return find_missing_tls(received, peer, BROKER_PROPERTIES)

    def authenticate(self, request: Callable[[Any], Any], exchange_token: Callable[[bytes], bytes], host: str) -> None:
        """Authenticate with SASL on a new connection, if the protocol requires it.

        Brokers before 1.0 do not support SaslAuthenticate requests (KIP-152). After a SaslHandshake request of version
        0, the client and the broker exchange tokens without headers, and the broker closes the connection if it rejects
        the credentials.

        Args:
            request: function that sends a request and returns its response.
            exchange_token: function that sends a token without a header, and returns the broker's token.
            host: host name of the broker.

        Raises:
            AuthenticationError: the broker rejected the credentials or the mechanism. The message does not contain the
                password.
            BrokerUnavailableError: the broker closed the connection, or it rejected credentials that were accepted
                before, because it may not have loaded them yet.
            UnsupportedBrokerError: the broker is older than 0.10, and does not support SaslHandshake requests.
        """
        if not self.uses_sasl:
            return
        try:
            self._log_in(request, exchange_token, host)
        except AuthenticationError as error:
            if not self._accepted_by:
                raise
            raise BrokerUnavailableError(f"{error}; retrying because the credentials were accepted before") from error
        self._accepted_by.add(host)

    @property
    def _sasl_name(self) -> str | None:
        """The user name as the mechanism encodes it; like the Java client, neither mechanism applies SASLprep.

        kafka-python encodes the name as UTF-8, but does not escape the separators of SCRAM messages. Source: RFC 5802,
        section 5.1; Kafka 3.9 ScramFormatter.saslName, ScramFormatter.normalize.
        """
        if self.username is None or not self.mechanism.startswith("SCRAM"):
            return self.username
        return self.username.replace("=", "=3D").replace(",", "=2C")

    def _log_in(self, request: Callable[[Any], Any], exchange_token: Callable[[bytes], bytes], host: str) -> None:
        response = request(SaslHandshakeRequest(mechanism=self.mechanism))
        if response.error_code == _UNSUPPORTED_SASL_MECHANISM:
            common = [mechanism for mechanism in SASL_MECHANISMS if mechanism in response.mechanisms]
            remedy = (
                f"set sasl.mechanism to {join_words(common, 'or')}"
                if common
                else f"enable {join_words(SASL_MECHANISMS, 'or')} in the broker's sasl.enabled.mechanisms"
            )
            raise AuthenticationError(
                f"broker {host} does not support sasl.mechanism = {self.mechanism}, only "
                f"{', '.join(response.mechanisms)}; {remedy}"
            )
        if response.error_code:
            raise AuthenticationError(
                f"broker {host} rejected SASL authentication with {error_name(response.error_code)}; check that the "
                f"port is a {self.protocol} listener"
            )
        # Omit the security_protocol argument: with it, kafka-python would log a warning for each connection.
        client = get_sasl_mechanism(self.mechanism)(
            host=host,
            sasl_mechanism=self.mechanism,
            sasl_plain_username=self._sasl_name,
            sasl_plain_password=self.password,
        )
        has_requests = response.API_VERSION > 0
        while not client.is_done():
            token = client.auth_bytes()
            answer = self._send_token(request, token, host) if has_requests else self._send_raw(exchange_token, token)
            try:
                client.receive(answer)
            except Exception as error:  # mechanisms raise various exception types for an invalid server proof
                raise AuthenticationError(
                    f"broker {host} failed to authenticate itself with {self.mechanism}: its server signature is "
                    "invalid, so it does not know the password; check that bootstrap.servers or zookeeper.connect "
                    "names the right cluster"
                ) from error

    def _send_token(self, request: Callable[[Any], Any], token: bytes, host: str) -> bytes:
        response = request(SaslAuthenticateRequest(auth_bytes=token, version=0))
        if response.error_code:
            raise AuthenticationError(
                f"{self.mechanism} authentication of user {self.username!r} with broker {host} failed: "
                f"{response.error_message}; check sasl.username and sasl.password"
            )
        return bytes(response.auth_bytes)

    def _send_raw(self, exchange_token: Callable[[bytes], bytes], token: bytes) -> bytes:
        try:
            return exchange_token(token)
        except BrokerUnavailableError as error:
            raise BrokerUnavailableError(
                f"{error}; brokers before 1.0 close the connection if {self.mechanism} authentication of user "
                f"{self.username!r} fails: if this persists, check sasl.username and sasl.password"
            ) from error


PLAINTEXT = Security()
