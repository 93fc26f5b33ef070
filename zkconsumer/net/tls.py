"""The TLS context for connections to brokers and ZooKeeper."""

from __future__ import annotations

import ssl

from zkconsumer.errors import ConfigurationError


def client_context(
    prefix: str,
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
        prefix: prefix of the property names in error messages: ``""`` for brokers, ``"zookeeper."`` for ZooKeeper.
        ca_location, certificate_location, key_location: paths of PEM files.
        key_password: password of the private key, if it is encrypted.
        check_hostname: whether the server's certificate must match its host name.

    Raises:
        ConfigurationError: a file cannot be loaded, or the private key is encrypted and ``key_password`` is None.
    """

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


__all__ = ["client_context"]
