"""Tests of TLS contexts and handshakes with servers of the standard library, without brokers and ZooKeeper."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from helpers.threads import in_thread

from zkconsumer.net.tls import BROKER_PROPERTIES, ZOOKEEPER_PROPERTIES, TlsProperties, client_context


class Recipe:
    """Certificates as of the commands in Kafka's documentation: the authority's has no key usage extension.

    Source: Kafka 3.9 documentation, section "Encryption and Authentication using SSL" (openssl req -x509).

    Attributes:
        ca: file with the authority's certificate.
        server: context of a server.
    """

    def __init__(self, folder: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        authority = self._certificate("authority", key, "authority", key, x509.BasicConstraints(True, None))
        self.ca = folder / "ca-cert.pem"
        self.ca.write_bytes(authority.public_bytes(Encoding.PEM))
        own = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        certificate = self._certificate("broker", own, "authority", key, names)
        file = folder / "server.pem"
        key_bytes = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file.write_bytes(key_bytes + certificate.public_bytes(Encoding.PEM))
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(file)

    @staticmethod
    def _certificate(
        name: str,
        key: ec.EllipticCurvePrivateKey,
        issuer: str,
        issuer_key: ec.EllipticCurvePrivateKey,
        extension: x509.ExtensionType,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]),
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            key.public_key(),
            x509.random_serial_number(),
            now - datetime.timedelta(1),
            now + datetime.timedelta(1),
        )
        return builder.add_extension(extension, critical=False).sign(issuer_key, hashes.SHA256())


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str = "127.0.0.1") -> None:
    """Perform a handshake; raise the client's error."""
    one, other = socket.socketpair()

    def accept() -> None:
        try:
            with server.wrap_socket(other, server_side=True) as accepted:
                accepted.recv(1)
        except OSError:
            pass  # the client rejected the certificate

    with other, one:
        accepting = in_thread(accept)
        try:
            client.wrap_socket(one, server_hostname=name).close()
        finally:
            one.close()
            accepting.result(10)


@pytest.mark.parametrize("strict", [False, True], ids=["until Python 3.12", "since Python 3.13"])
@pytest.mark.parametrize("properties", [BROKER_PROPERTIES, ZOOKEEPER_PROPERTIES], ids=["broker", "zookeeper"])
def test_certificates_of_kafka_recipe_are_trusted(
    properties: TlsProperties, strict: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13 rejects an authority without the key usage extension by default; Java and Python 3.12 do not."""
    recipe = Recipe(tmp_path)
    create = ssl.create_default_context

    def create_default_context(*arguments: object, **more: object) -> ssl.SSLContext:
        context = create(*arguments, **more)  # type: ignore[arg-type]
        if strict:
            context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", create_default_context)
    if strict:
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(ssl.create_default_context(cafile=recipe.ca), recipe.server)
    context = client_context(
        properties,
        ca_location=str(recipe.ca),
        certificate_location=None,
        key_location=None,
        key_password=None,
        check_hostname=True,
    )
    handshake(context, recipe.server)
