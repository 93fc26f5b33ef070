"""ZooKeeperSecurity: TLS, SASL and digest authentication for ZooKeeper connections."""

from __future__ import annotations

import importlib
import ssl
from dataclasses import dataclass, field
from typing import Any

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError
from zkconsumer.net.tls import ZOOKEEPER_PROPERTIES, client_context
from zkconsumer.optional_packages import install_command


def _require_module(name: str, remedy: str) -> None:
    """Raise ``ConfigurationError`` if a module cannot be imported.

    kazoo imports the module in its connection thread; if it is missing, kazoo only reports a connection failure.

    Args:
        name: module name.
        remedy: what to do; the end of the error message.
    """
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise ConfigurationError(f"zookeeper.sasl.mechanism requires the module {name}: {remedy}") from error


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """Security settings for ZooKeeper connections. The ``repr`` contains no secrets.

    Attributes:
        tls: TLS context; None for unencrypted connections.
        sasl_mechanism: ``DIGEST-MD5``, which requires a user name and password, or ``GSSAPI``.
        sasl_username: user name for ``DIGEST-MD5``.
        sasl_password: password for ``DIGEST-MD5``.
        digest: ``user:password`` for ZooKeeper's digest authentication.
    """

    tls: ssl.SSLContext | None = None
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    digest: str | None = field(default=None, repr=False)

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> ZooKeeperSecurity:
        """Create the settings from a consumer configuration.

        Raises:
            ConfigurationError: properties are missing or invalid, or a required module is not installed.
        """
        if config.zookeeper_auth_digest is not None and ":" not in config.zookeeper_auth_digest:
            raise ConfigurationError("zookeeper.auth.digest must have the form user:password")
        if config.zookeeper_sasl_mechanism == "DIGEST-MD5" and not (
            config.zookeeper_sasl_username and config.zookeeper_sasl_password
        ):
            raise ConfigurationError(
                "zookeeper.sasl.mechanism = DIGEST-MD5 requires zookeeper.sasl.username and zookeeper.sasl.password"
            )
        if config.zookeeper_sasl_mechanism:
            _require_module("puresasl", f"run `{install_command('sasl')}` (extra 'sasl')")
        if config.zookeeper_sasl_mechanism == "GSSAPI":
            _require_module("kerberos", "pip install pykerberos, which requires the system's Kerberos libraries")
        tls = None
        if config.zookeeper_ssl_client_enable:
            tls = client_context(
                ZOOKEEPER_PROPERTIES,
                ca_location=config.zookeeper_ssl_ca_location,
                certificate_location=config.zookeeper_ssl_certificate_location,
                key_location=config.zookeeper_ssl_key_location,
                key_password=config.zookeeper_ssl_key_password,
                check_hostname=config.zookeeper_ssl_endpoint_identification_algorithm == "https",
            )
        return cls(
            tls,
            config.zookeeper_sasl_mechanism,
            config.zookeeper_sasl_username,
            config.zookeeper_sasl_password,
            config.zookeeper_auth_digest,
        )

    @property
    def authenticates(self) -> bool:
        """Whether the client authenticates, so that ACLs can restrict access to its znodes."""
        return bool(self.sasl_mechanism or self.digest)

    def client_arguments(self) -> dict[str, Any]:
        """Return the settings as keyword arguments for ``KazooClient``, except for the TLS context."""
        arguments: dict[str, Any] = {}
        if self.tls:
            arguments["use_ssl"] = True
        if self.sasl_mechanism:
            options: dict[str, Any] = {"mechanism": self.sasl_mechanism}
            if self.sasl_mechanism == "DIGEST-MD5":
                options |= {"username": self.sasl_username, "password": self.sasl_password}
            arguments["sasl_options"] = options
        if self.digest:
            arguments["auth_data"] = [("digest", self.digest)]
        return arguments
