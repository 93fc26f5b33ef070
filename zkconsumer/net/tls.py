"""TLS for connections to brokers and ZooKeeper: the context, and the classification of failed handshakes."""

from __future__ import annotations

import contextlib
import socket
import ssl
from dataclasses import dataclass

from zkconsumer.errors import ConfigurationError

#: First bytes of a TLS record with an alert, which a TLS server sends to a client that does not use TLS.
_ALERT_RECORD = b"\x15\x03"

#: Errors of a connection that was closed or reset, or has not responded yet.
_CONNECTION_ERRORS = (
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
    ssl.SSLSyscallError,
    ssl.SSLWantReadError,
    ssl.SSLWantWriteError,
)

#: Alerts that a server sends for problems of its own, or when it cancels the handshake, for example to shut down.
_TRANSIENT_ALERTS = ("internal error", "user cancelled", "user canceled", "close notify")

#: Words of OpenSSL's reasons, and what the user must check; ``{p}`` is the prefix of the property names.
_REMEDIES = {
    ("wrong version number", "http request", "https proxy request", "packet length too long", "record layer failure"): (
        "the port does not use TLS; check the port and {enabled_by}"
    ),
    ("certificate", "unknown ca", "access denied", "decrypt error"): (
        "the server rejected the client certificate; check {p}ssl.certificate.location and {p}ssl.key.location"
    ),
    ("unrecognized name",): "the server has no certificate for this host name; check the address of the server",
    ("handshake failure",): (
        "the server may require a client certificate ({p}ssl.certificate.location), or a TLS protocol or cipher that "
        "this client does not support"
    ),
    ("protocol", "cipher", "insufficient security", "fallback", "too small", "no suitable", "group", "curve"): (
        "the client and the server have no TLS protocol, cipher or key size in common; check the TLS settings of the "
        "server, and {enabled_by}"
    ),
}


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a connection was rejected, and what to check."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class TlsProperties:
    """Names of the TLS properties, used in error messages.

    Attributes:
        prefix: prefix of the property names: ``""`` for brokers, ``"zookeeper."`` for ZooKeeper.
        enabled_by: name of the property that enables TLS.
    """

    prefix: str
    enabled_by: str


BROKER_PROPERTIES = TlsProperties("", "security.protocol")
ZOOKEEPER_PROPERTIES = TlsProperties("zookeeper.", "zookeeper.ssl.client.enable")


def client_context(
    properties: TlsProperties,
    *,
    ca_location: str | None,
    certificate_location: str | None,
    key_location: str | None,
    key_password: str | None,
    check_hostname: bool,
) -> ssl.SSLContext:
    """Create a client-side TLS context.

    Only the certificate authorities in ``ca_location`` are trusted, or the system's if it is None.

    Args:
        properties: names of the properties in error messages.
        ca_location, certificate_location, key_location: paths of PEM files.
        key_password: password of the private key, if it is encrypted.
        check_hostname: whether the server's certificate must match its host name.

    Raises:
        ConfigurationError: a file cannot be loaded, or the private key is encrypted and ``key_password`` is None.
    """

    prefix = properties.prefix

    def missing_password() -> str:  # otherwise, OpenSSL would prompt for the password on the terminal
        raise ConfigurationError(
            f"the private key of {prefix}ssl.key.location = {key_location!r} is encrypted; set {prefix}ssl.key.password"
        )

    files = {"ca": ca_location}
    try:
        context = ssl.create_default_context(cafile=ca_location)
        context.check_hostname = check_hostname
        # As in Java, and the same in each Python: since Python 3.13, the default flags reject a certificate authority
        # without the key usage extension, and accept an intermediate one.
        context.verify_flags = ssl.VERIFY_X509_TRUSTED_FIRST | ssl.VERIFY_X509_PARTIAL_CHAIN
        if certificate_location:
            files = {"certificate": certificate_location, "key": key_location}
            password = missing_password if key_password is None else key_password
            context.load_cert_chain(certificate_location, key_location, password)
    except OSError as error:  # includes SSLError
        names = ", ".join(f"{prefix}ssl.{name}.location = {path!r}" for name, path in files.items() if path)
        raise ConfigurationError(f"could not load {names}: {error.strerror or error}") from error
    return context


def server_name(host: str) -> str:
    """Return the name for SNI and the host name check: an absolute DNS name without its final dot.

    Certificates do not contain the dot, and RFC 6066 does not allow it in SNI.
    """
    return host.removesuffix(".") or host


def find_rejection(error: BaseException | None, peer: str, properties: TlsProperties) -> Rejection | None:
    """Return why a TLS handshake was rejected by one side, or None if the handshake may succeed when it is retried.

    A handshake is rejected by an alert of the server, a failed verification, or bytes that are not TLS. A connection
    that is closed, reset or silent is retried.

    Args:
        error: error of the handshake, or of the first read or write after it: with TLS 1.3, the server verifies the
            client certificate after the client has completed the handshake.
        peer: description of the server, such as ``broker h:9093``.
        properties: names of the properties for the remedy.
    """
    if not isinstance(error, ssl.SSLError) or isinstance(error, _CONNECTION_ERRORS):
        return None
    prefix = properties.prefix
    if isinstance(error, ssl.SSLCertVerificationError):
        return Rejection(
            f"the certificate of {peer} is not trusted: {error.verify_message}",
            f"check {prefix}ssl.ca.location and {prefix}ssl.endpoint.identification.algorithm",
        )
    reason = (error.reason or "unknown reason").lower().replace("_", " ")
    if any(words in reason for words in _TRANSIENT_ALERTS):
        return None
    remedy = next(
        (remedy for words, remedy in _REMEDIES.items() if any(word in reason for word in words)),
        "check {p}ssl.* and {enabled_by}",
    )
    return Rejection(
        f"the TLS handshake with {peer} failed with {reason!r}",
        remedy.format(p=prefix, enabled_by=properties.enabled_by),
    )


def find_missing_tls(received: bytes, peer: str, properties: TlsProperties) -> Rejection | None:
    """Return a rejection if a server sent a TLS alert to a client that does not use TLS; otherwise, return None."""
    if not received.startswith(_ALERT_RECORD):
        return None
    return Rejection(f"{peer} requires TLS on this port", f"check the port and {properties.enabled_by}")


def read_alert(sock: socket.socket | None) -> ssl.SSLError | None:
    """Read a received alert after a write failed, and return it as an error; return None if there is no alert.

    A server sends the alert before it closes the connection, so a write may fail before the alert is read.
    """
    if not isinstance(sock, ssl.SSLSocket):
        return None
    with contextlib.suppress(OSError, ValueError):
        sock.settimeout(0)
        try:
            sock.recv(1)
        except ssl.SSLError as error:
            return error
    return None


__all__ = [
    "BROKER_PROPERTIES",
    "ZOOKEEPER_PROPERTIES",
    "Rejection",
    "TlsProperties",
    "client_context",
    "find_missing_tls",
    "find_rejection",
    "read_alert",
    "server_name",
]
