"""Tests of TLS, SASL and ACLs with a ZooKeeper that has logins and a TLS port, and with a JVM member."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from helpers.producing import numbers, produce
from helpers.reading import take
from helpers.waiting import wait_for
from helpers.zookeeper import zookeeper_client
from interop.jvm import jvm_performance
from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE

from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector, create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.process import free_port
from zkconsumer.errors import AuthenticationError, ConfigurationError, ZkConsumerError
from zkconsumer.zookeeper.session import ZooKeeperSession

from .faults import Cable
from .test_security import PASSWORD, write_keystore

#: Code of a SASL request in ZooKeeper's protocol, after its length and its id. Source: ZooDefs.OpCode.sasl.
_SASL = (102).to_bytes(4)


def jaas(section: str, **logins: str) -> str:
    """Return a section of the JVM's file of logins."""
    options = " ".join(f'{name}="{value}"' for name, value in logins.items())
    return f"{section} {{\n org.apache.zookeeper.server.auth.DigestLoginModule required {options};\n}};\n"


class Secured:
    """A cluster whose ZooKeeper has the logins ``alice`` and ``bob`` and a TLS port. Plain clients are allowed, too."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca, self.other_ca = folder / "ca.pem", folder / "other-ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        trustme.CA().cert_pem.write_to_path(self.other_ca)
        self.tls_port = free_port()
        self.logins = folder / "server.jaas"
        self.write_logins(PASSWORD)
        options = [
            f"-Djava.security.auth.login.config={self.logins}",
            "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        ]
        settings = {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": self.tls_port,
            "secureClientPortAddress": "127.0.0.1",
            "ssl.keyStore.location": write_keystore(self.authority, folder),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": self.ca,
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "none",
        }
        self.cluster = DevCluster(zookeeper_options=options, zookeeper_config=settings)

    def write_logins(self, password: str) -> None:
        """Set the password of ``alice``; it applies when ZooKeeper starts."""
        self.logins.write_text(jaas("Server", user_alice=password, user_bob="of-bob"))

    @property
    def tls(self) -> dict[str, object]:
        """Properties of a client that uses the TLS port."""
        return {"zookeeper.connect": f"127.0.0.1:{self.tls_port}", "zookeeper.ssl.client.enable": True}


def sasl(password: str = PASSWORD) -> dict[str, object]:
    """Return the properties of a client that logs in as ``alice``."""
    return {
        "zookeeper.sasl.mechanism": "DIGEST-MD5",
        "zookeeper.sasl.username": "alice",
        "zookeeper.sasl.password": password,
    }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("zookeeper"))
    with made.cluster:
        yield made


@pytest.fixture
def topic(secured: Secured, unique: Callable[[str], str]) -> str:
    """A topic with ten messages."""
    name = secured.cluster.create_topic(unique("t"))
    produce(secured.cluster.admin, name, 0, numbers(0, 10))
    return name


@pytest.fixture
def consumer(secured: Secured, unique: Callable[[str], str]) -> Iterator[Callable[..., ZookeeperConsumerConnector]]:
    """Create consumers of the test's group."""
    with contextlib.ExitStack() as closing:

        def make(properties: Mapping[str, object]) -> ZookeeperConsumerConnector:
            connector = create_consumer(
                ConsumerConfig.from_dict(
                    {
                        "zookeeper.connect": secured.cluster.zookeeper_connect,
                        "zookeeper.session.timeout.ms": 2000,
                        "group.id": unique("g"),
                        "auto.offset.reset": "smallest",
                        "consumer.timeout.ms": 20_000,
                        "rebalance.backoff.ms": 200,
                        **properties,
                    },
                    strict=True,
                )
            )
            closing.callback(connector.shutdown)
            return connector

        yield make


@contextlib.contextmanager
def kazoo(cluster: DevCluster, **arguments: Any) -> Iterator[KazooClient]:
    with zookeeper_client(cluster.zookeeper_connect, **arguments) as client:
        yield client


def session_of(connector: ZookeeperConsumerConnector) -> ZooKeeperSession:
    """Return the ZooKeeper session of a running consumer."""
    assert connector._runtime is not None
    return connector._runtime.member.session


class LoginCutter:
    """A proxy for ZooKeeper that closes connections in which the client begins a SASL handshake."""

    def __init__(self, port: int) -> None:
        self._cable = Cable(port)
        self._cable.on_request = self._on_request
        self._lock = threading.Lock()
        self.remaining = 0  # number of handshakes to interrupt
        self.port = self._cable.port

    def _on_request(self, data: bytes) -> None:
        with self._lock:
            if self.remaining and data[8:12] == _SASL:
                self.remaining -= 1
                raise ConnectionAbortedError

    def __enter__(self) -> LoginCutter:
        return self

    def __exit__(self, *_error: object) -> None:
        self._cable.__exit__(None, None, None)


# ---- TLS ------------------------------------------------------------------------------------------------


def test_members_use_tls_and_sasl(
    secured: Secured, topic: str, consumer: Callable[..., ZookeeperConsumerConnector]
) -> None:
    connector = consumer({**secured.tls, **sasl(), "zookeeper.ssl.ca.location": secured.ca})

    [stream] = connector.create_message_streams({topic: 1})[topic]

    assert len(take(stream, 10)) == 10
    assert connector.commit_offsets()


@pytest.mark.parametrize("given", ["ca", "system", "other", "other name"])
def test_only_given_authorities_are_trusted(
    given: str,
    secured: Secured,
    topic: str,
    consumer: Callable[..., ZookeeperConsumerConnector],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system's authorities are replaced by ``ca.location``; here the system trusts the server's certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.other_ca if given == "ca" else secured.ca))
    properties = {**secured.tls, "zookeeper.connection.timeout.ms": 2000}
    if given == "other name":  # the certificate contains only the address
        properties["zookeeper.connect"] = f"localhost:{secured.tls_port}"
    elif given != "system":
        properties["zookeeper.ssl.ca.location"] = secured.ca if given == "ca" else secured.other_ca
    connector = consumer(properties)

    if given in ("ca", "system"):
        [stream] = connector.create_message_streams({topic: 1})[topic]
        take(stream, 10)
    else:
        with pytest.raises(AuthenticationError, match=r"the certificate of .* is not trusted: .*zookeeper\.ssl"):
            connector.create_message_streams({topic: 1})


@pytest.mark.parametrize("uses_tls", [False, True])
def test_wrong_port_names_tls_property(
    uses_tls: bool, secured: Secured, consumer: Callable[..., ZookeeperConsumerConnector]
) -> None:
    """These servers close the connection, which is retried; the error says what the ports use."""
    properties: dict[str, object] = {"zookeeper.connect": f"127.0.0.1:{secured.tls_port}"}
    if uses_tls:
        properties = {**secured.tls, "zookeeper.ssl.ca.location": secured.ca}
        properties["zookeeper.connect"] = secured.cluster.zookeeper_connect
    connector = consumer({**properties, "zookeeper.connection.timeout.ms": 1500})
    expected = "does not use TLS" if uses_tls else "requires TLS"
    with pytest.raises(ZkConsumerError, match=rf"{expected} on this port; check .*zookeeper\.ssl\.client\.enable"):
        connector.create_message_streams({"t": 1})


def test_many_znodes_are_read_over_tls(secured: Secured, consumer: Callable[..., ZookeeperConsumerConnector]) -> None:
    """Responses that share a TLS record are read at once, and not when the socket becomes readable the next time."""
    connector = consumer({**secured.tls, "zookeeper.ssl.ca.location": secured.ca})
    name = secured.cluster.create_topic(f"wide-{connector.config.group_id}", 300)

    connector.create_message_streams({name: 1})

    assert len(connector.assignment) == 300
    assert len(connector.commit_offsets(dict.fromkeys(connector.assignment, 0))) == 300


@pytest.mark.parametrize(
    ("prefix", "switch"),
    [("", {"security.protocol": "SSL"}), ("zookeeper.", {"zookeeper.ssl.client.enable": True})],
    ids=["brokers", "zookeeper"],
)
@pytest.mark.parametrize("password", [None, "wrong", "of-the-key"])
def test_encrypted_key_needs_its_password(
    password: str | None,
    prefix: str,
    switch: dict[str, object],
    secured: Secured,
    consumer: Callable[..., ZookeeperConsumerConnector],
    tmp_path: Path,
) -> None:
    """Without a password, OpenSSL would ask for it on the terminal."""
    client = secured.authority.issue_cert("client.example")
    certificate, plain, key = tmp_path / "client.pem", tmp_path / "plain.key", tmp_path / "client.key"
    client.cert_chain_pems[0].write_to_path(certificate)
    client.private_key_pem.write_to_path(plain)
    command = ["openssl", "pkey", "-in", str(plain), "-aes256", "-passout", "pass:of-the-key", "-out", str(key)]
    subprocess.run(command, check=True, capture_output=True, timeout=20)
    properties = {
        **switch,
        f"{prefix}ssl.ca.location": secured.ca,
        f"{prefix}ssl.certificate.location": certificate,
        f"{prefix}ssl.key.location": key,
        f"{prefix}ssl.key.password": password,
        "zookeeper.connection.timeout.ms": 300,
    }
    messages = {
        None: rf"key of {prefix}ssl\.key\.location = '.*' is encrypted; set {prefix}ssl\.key\.password",
        "wrong": rf"could not load {prefix}ssl\.certificate\.location = .*{prefix}ssl\.key\.location = ",
        "of-the-key": "could not connect to ZooKeeper",
    }
    error = ZkConsumerError if password == "of-the-key" else ConfigurationError

    with pytest.raises(error, match=messages[password]) as raised:
        consumer({**properties, "zookeeper.connect": "127.0.0.1:1"}).create_message_streams({"t": 1})
    assert "wrong" not in str(raised.value)


# ---- SASL -----------------------------------------------------------------------------------------------


def test_rejected_first_login_raises_at_once(
    topic: str, consumer: Callable[..., ZookeeperConsumerConnector], caplog: pytest.LogCaptureFixture
) -> None:
    connector = consumer({**sasl("wrong"), "zookeeper.connection.timeout.ms": 60_000})

    with pytest.raises(AuthenticationError, match=r"authentication with ZooKeeper at .* failed: .*zookeeper\.sasl"):
        connector.create_message_streams({topic: 1})
    assert "wrong" not in caplog.text


def test_interrupted_first_login_is_repeated(
    secured: Secured, topic: str, consumer: Callable[..., ZookeeperConsumerConnector]
) -> None:
    with LoginCutter(secured.cluster.zookeeper.port) as proxy:
        proxy.remaining = 2
        connector = consumer({**sasl(), "zookeeper.connect": f"127.0.0.1:{proxy.port}"})

        [stream] = connector.create_message_streams({topic: 1})[topic]

        assert len(take(stream, 10)) == 10
        assert proxy.remaining == 0
        connector.shutdown()


def test_server_that_closes_each_login_rejects_it(
    secured: Secured, topic: str, consumer: Callable[..., ZookeeperConsumerConnector]
) -> None:
    """ZooKeeper before 3.6 closes the connection if the credentials are wrong."""
    with LoginCutter(secured.cluster.zookeeper.port) as proxy:
        proxy.remaining = 1_000_000
        connector = consumer(
            {
                **sasl(),
                "zookeeper.connect": f"127.0.0.1:{proxy.port}",
                "zookeeper.connection.timeout.ms": 1500,
            }
        )

        with pytest.raises(AuthenticationError, match=r"authentication .* failed: Connection dropped in SASL"):
            connector.create_message_streams({topic: 1})


def test_interrupted_later_logins_keep_session_and_partitions(
    secured: Secured,
    topic: str,
    consumer: Callable[..., ZookeeperConsumerConnector],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with LoginCutter(secured.cluster.zookeeper.port) as proxy, caplog.at_level(logging.WARNING, "zkconsumer"):
        connector = consumer(
            {
                **sasl(),
                "zookeeper.connect": f"127.0.0.1:{proxy.port}",
                "zookeeper.session.timeout.ms": 10_000,
            }
        )
        [stream] = connector.create_message_streams({topic: 1})[topic]
        take(stream, 5)
        session = session_of(connector)
        session_id, owned = session.session_id, connector.assignment
        proxy.remaining = 2

        session._connection.drop()

        wait_for(lambda: proxy.remaining == 0 and session.is_connected, what="the next login")
        assert len(take(stream, 5)) == 5
        assert connector.commit_offsets()
        assert (session.session_id, connector.assignment) == (session_id, owned)
        connector.shutdown()
    assert [record.getMessage() for record in caplog.records if "zookeeper_login_failed" in record.getMessage()] == [
        f"event='zookeeper_login_failed' endpoint='127.0.0.1:{proxy.port}' "
        "error='Connection dropped in SASL: socket connection broken'"
    ]


@pytest.mark.slow
def test_member_survives_restart_with_other_password(
    secured: Secured,
    topic: str,
    consumer: Callable[..., ZookeeperConsumerConnector],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It abandons its session after the session timeout, and joins again when its login is accepted."""
    zookeeper = secured.cluster.zookeeper
    with caplog.at_level(logging.WARNING, "zkconsumer"):
        connector = consumer(sasl())
        [stream] = connector.create_message_streams({topic: 1})[topic]
        take(stream, 5)
        connector.commit_offsets()
        session_id = session_of(connector).session_id
        secured.write_logins("another")
        zookeeper.restart()
        try:
            wait_for(lambda: "zookeeper_login_failed" in caplog.text, 30, what="the rejected login")
            wait_for(lambda: not connector.assignment, 30, what="the end of the lease")
            with kazoo(secured.cluster) as client:
                owner = f"/consumers/{connector.config.group_id}/owners/{topic}/0"
                wait_for(lambda: not client.exists(owner), 30, what="the end of the abandoned session")
        finally:
            secured.write_logins(PASSWORD)
            zookeeper.restart()
        wait_for(lambda: connector.assignment, 60, what="the member to join again")
    produce(secured.cluster.admin, topic, 0, numbers(10, 15))
    assert {message.value for message in take(stream, 10)} == set(numbers(5, 15))
    assert session_of(connector).session_id != session_id


# ---- ACLs -----------------------------------------------------------------------------------------------


def acls(client: KazooClient, path: str) -> dict[str, set[tuple[str, str, tuple[str, ...]]]]:
    """Return the ACLs of a znode and its descendants: scheme, id and rights by path."""
    found = {path: {(acl.id.scheme, acl.id.id, tuple(acl.acl_list)) for acl in client.get_acls(path)[0]}}
    for child in client.get_children(path):
        found |= acls(client, f"{path}/{child}")
    return found


def test_other_login_cannot_change_owners_and_offsets(
    secured: Secured, topic: str, consumer: Callable[..., ZookeeperConsumerConnector]
) -> None:
    """``ids`` is open as in the JVM."""
    connector = consumer({**sasl(), "offsets.commit.unchanged": True})
    [stream] = connector.create_message_streams({topic: 1})[topic]
    take(stream, 5)
    connector.commit_offsets()
    root = f"/consumers/{connector.config.group_id}"
    bob = {"mechanism": "DIGEST-MD5", "username": "bob", "password": "of-bob"}
    with kazoo(secured.cluster, sasl_options=bob) as client:
        for kind in ("owners", "offsets"):
            for path in (f"{root}/{kind}", f"{root}/{kind}/{topic}"):
                attempts: list[Callable[[], object]] = [
                    partial(client.create, f"{path}/1"),
                    partial(client.set, path, b"x"),
                    partial(client.set_acls, path, OPEN_ACL_UNSAFE),
                    partial(client.delete, path, recursive=True),
                ]
                for attempt in attempts:
                    with pytest.raises(kazoo_errors.NoAuthError):
                        attempt()
            with pytest.raises(kazoo_errors.NoAuthError):
                client.set(f"{root}/{kind}/{topic}/0", b"9")
            assert client.get(f"{root}/{kind}/{topic}/0")
        client.create(f"{root}/ids/other")
        client.delete(f"{root}/ids/other")


@pytest.mark.slow
def test_acls_are_those_of_jvm_member(
    secured: Secured,
    topic: str,
    consumer: Callable[..., ZookeeperConsumerConnector],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    login = tmp_path / "client.jaas"
    login.write_text(jaas("Client", username="alice", password=PASSWORD))
    options = f"-Djava.security.auth.login.config={login} {os.environ.get('JAVA_TOOL_OPTIONS', '')}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", options)
    connector = consumer({**sasl(), "consumer.id": "c"})
    [stream] = connector.create_message_streams({topic: 1})[topic]
    take(stream, 5)
    connector.commit_offsets()
    group = connector.config.group_id
    properties = {
        "zookeeper.connect": secured.cluster.zookeeper_connect,
        "group.id": f"{group}-jvm",
        "consumer.id": "c",
        "auto.offset.reset": "smallest",
        "auto.commit.interval.ms": 100,
    }
    jvm = jvm_performance("jvm", tmp_path, properties, topic)
    jvm.start()
    try:
        with kazoo(secured.cluster) as client:
            wait_for(lambda: client.exists(f"/consumers/{group}-jvm/offsets/{topic}/0"), 60, what="a commit of the JVM")
            ours, theirs = acls(client, f"/consumers/{group}"), acls(client, f"/consumers/{group}-jvm")
    finally:
        jvm.kill()
    assert {path.replace(f"{group}-jvm", group): rights for path, rights in theirs.items()} == ours
    assert ours[f"/consumers/{group}/owners/{topic}/0"] == {
        ("sasl", "alice", ("ALL",)),
        ("world", "anyone", ("READ",)),
    }
