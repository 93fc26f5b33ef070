"""Tests of TLS, SASL and ACLs with brokers and a ZooKeeper that require authentication."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from helpers.producing import numbers, produce
from helpers.reading import take, values
from helpers.teardown import started
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import stored
from helpers.zookeeper import zookeeper_client

from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector, create_consumer
from zkconsumer.broker.channel import BrokerChannel
from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.security import Security
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.process import free_port
from zkconsumer.errors import AuthenticationError, BrokerUnavailableError, ConfigurationError, ZkConsumerError
from zkconsumer.message import Endpoint

from .faults import Cable

PASSWORD = "the-secret-of-alice"
_MODULES = "org.apache.kafka.common.security"


def scram(algorithm: str, password: str) -> str:
    """Return a SCRAM credential as brokers store it in ZooKeeper. Source: RFC 5802."""
    salt, iterations = os.urandom(16), 4096
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    client = hmac.digest(salted, b"Client Key", algorithm)
    server = hmac.digest(salted, b"Server Key", algorithm)
    stored = hashlib.new(algorithm, client).digest()
    encoded = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return "salt={},stored_key={},server_key={},iterations=4096".format(*encoded)


def write_keystore(authority: trustme.CA, folder: Path) -> Path:
    """Write the key and the certificate of a local server to a keystore of the JVM."""
    server = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(server.private_key_pem.bytes(), None)
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + server.cert_chain_pems[0].bytes()
    )
    return path


class Secured:
    """A cluster whose broker has a listener for each security setting, and the files of its clients."""

    def __init__(self, cluster: DevCluster, folder: Path) -> None:
        self.cluster = cluster
        authority, stranger = trustme.CA(), trustme.CA()
        self.ca, self.other_ca = folder / "ca.pem", folder / "other-ca.pem"
        authority.cert_pem.write_to_path(self.ca)
        stranger.cert_pem.write_to_path(self.other_ca)
        self.certificate, self.key = folder / "client.pem", folder / "client.key"
        client = authority.issue_cert("client.example")
        client.cert_chain_pems[0].write_to_path(self.certificate)
        client.private_key_pem.write_to_path(self.key)
        keystore = write_keystore(authority, folder)
        [broker] = cluster.brokers
        protocols = {"TLS": "SSL", "MUTUAL": "SSL", "PASSWORD": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
        ports = {name: free_port() for name in protocols}
        self.ports = ports
        listeners = ",".join(
            [f"PLAINTEXT://{broker.endpoint.host}:{broker.endpoint.port}"]
            + [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
        )
        mapped = ",".join(["PLAINTEXT:PLAINTEXT"] + [f"{name}:{protocol}" for name, protocol in protocols.items()])
        lines = [
            f"listeners={listeners}",
            f"listener.security.protocol.map={mapped}",
            "inter.broker.listener.name=PLAINTEXT",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={keystore}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.ca}",
            "listener.name.mutual.ssl.client.auth=required",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        ]
        for name in ("password", "both"):
            lines += [
                f"listener.name.{name}.plain.sasl.jaas.config={_MODULES}.plain.PlainLoginModule required "
                f'user_alice="{PASSWORD}";',
                f"listener.name.{name}.scram-sha-256.sasl.jaas.config={_MODULES}.scram.ScramLoginModule required;",
                f"listener.name.{name}.scram-sha-512.sasl.jaas.config={_MODULES}.scram.ScramLoginModule required;",
            ]
        properties = cluster.folder / "broker-0.properties"
        properties.write_text("\n".join([properties.read_text(), *lines, ""]))
        with zookeeper_client(cluster.zookeeper_connect) as zk:
            algorithms = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
            credentials = {name: scram(algorithm, PASSWORD) for name, algorithm in algorithms.items()}
            content = json.dumps({"version": 1, "config": credentials})
            for name in ("alice", "al%2Cice%3Dx"):  # brokers encode names as in URLs
                zk.create(f"/config/users/{name}", content.encode(), makepath=True)
        broker.restart()

    def tls(self, **changes: object) -> dict[str, object]:
        """Return the properties of a client that trusts the broker's certificate."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.ca), **changes}

    def password(self, mechanism: str = "PLAIN", password: str = PASSWORD) -> dict[str, object]:
        """Return the properties of a client with a password."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with DevCluster() as cluster:
        yield Secured(cluster, tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def consumer(secured: Secured, unique: Callable[[str], str]) -> Iterator[Callable[..., ZookeeperConsumerConnector]]:
    def make(properties: dict[str, object]) -> ZookeeperConsumerConnector:
        given: dict[str, object] = {
            "zookeeper.connect": secured.cluster.zookeeper_connect,
            "group.id": unique("g"),
            "auto.offset.reset": "smallest",
            "consumer.timeout.ms": 20_000,
            **properties,
        }
        return create_consumer(ConsumerConfig.from_dict(given, strict=True))

    with started(make, ZookeeperConsumerConnector.shutdown) as start:
        yield start


WAYS: dict[str, Callable[[Secured], dict[str, object]]] = {
    "tls": lambda s: {**s.tls(), "bootstrap.servers": f"127.0.0.1:{s.ports['TLS']}"},
    "mutual tls": lambda s: {
        **s.tls(),
        "ssl.certificate.location": str(s.certificate),
        "ssl.key.location": str(s.key),
        "bootstrap.servers": f"127.0.0.1:{s.ports['MUTUAL']}",
    },
    "plain": lambda s: s.password(),
    "scram 256": lambda s: s.password("SCRAM-SHA-256"),
    "scram 512, offsets in kafka": lambda s: {**s.password("scram-sha-512"), "offsets.storage": "kafka"},
    "both": lambda s: {**s.password("SCRAM-SHA-512"), **s.tls(), "security.protocol": "SASL_SSL"},
}


@pytest.mark.parametrize("way", WAYS)
def test_consumer_reads_and_commits_through_secured_listener(
    way: str,
    secured: Secured,
    consumer: Callable[..., ZookeeperConsumerConnector],
    unique: Callable[[str], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker is found through ZooKeeper if it has a listener with the security protocol."""
    name = secured.cluster.create_topic(unique("t"), 2)
    for partition in range(2):
        produce(secured.cluster.admin, name, partition, numbers(0, 50))
    with caplog.at_level(logging.DEBUG, "zkconsumer"), caplog.at_level(1, "zkconsumer.zookeeper.kazoo"):
        connector = consumer({**WAYS[way](secured), "zookeeper.auth.digest": f"alice:{PASSWORD}"})
        [stream] = connector.create_message_streams({name: 1})[name]
        assert sorted(values(take(stream, 100))) == sorted(numbers(0, 50) * 2)
        assert set(connector.commit_offsets().values()) == {50}
    assert PASSWORD not in caplog.text
    assert PASSWORD not in repr(connector.config)
    assert not [record for record in caplog.records if record.name.startswith("kafka")]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_spark_query_reads_through_secured_listener(secured: Secured, unique: Callable[[str], str]) -> None:
    """The planning process and the tasks log in, and no output of Spark contains the password."""
    name, group = secured.cluster.create_topic(unique("t"), 2), unique("g")
    for partition in range(2):
        produce(secured.cluster.admin, name, partition, numbers(0, 50))
    options = {
        **secured.password("SCRAM-SHA-512"),
        **secured.tls(),
        "security.protocol": "SASL_SSL",
        "zookeeper.auth.digest": f"alice:{PASSWORD}",
        "zookeeper.connect": secured.cluster.zookeeper_connect,
        "group.id": group,
        "subscribe": name,
        "startingOffsets": "earliest",
    }
    # The paths of pytest are too long for Spark's Unix domain sockets.
    with tempfile.TemporaryDirectory(prefix="zkconsumer-test-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "spark.drivers.log", json.dumps({"folder": folder, "options": options})],
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split()[-1] == "100"
    assert "event='consumer_registered'" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    with zookeeper_client(secured.cluster.zookeeper_connect) as zk:
        wait_until_equal(lambda: stored(zk, group, name), {0: "50", 1: "50"})
        for partition in range(2):
            acls, _ = zk.get_acls(f"/consumers/{group}/offsets/{name}/{partition}")
            assert {acl.id.scheme for acl in acls} == {"digest", "world"}


def channel(secured: Secured, listener: str, properties: dict[str, object]) -> BrokerChannel:
    config = ConsumerConfig.from_dict({"zookeeper.connect": "z:1", "group.id": "g", **properties})
    endpoint = Endpoint("127.0.0.1", secured.ports[listener])
    return Connecting("test", 10, Security.from_config(config)).channel(endpoint)


@pytest.mark.parametrize(
    ("listener", "properties", "said"),
    [
        ("PASSWORD", lambda s: s.password(password="wrong"), "PLAIN authentication of user 'alice' with"),
        (
            "PASSWORD",
            lambda s: s.password("SCRAM-SHA-256", "wrong"),
            "SCRAM-SHA-256 authentication of user 'alice' with",
        ),
        (
            "PASSWORD",
            lambda s: s.password("SCRAM-SHA-512", "wrong"),
            "SCRAM-SHA-512 authentication of user 'alice' with",
        ),
        ("TLS", lambda s: {"security.protocol": "SSL"}, "is not trusted"),
        ("MUTUAL", lambda s: s.tls(), "ssl.certificate.location"),
        ("TLS", lambda s: {}, "requires TLS on this port; check the port and security.protocol"),
        ("BOTH", lambda s: s.password(), "requires TLS on this port; check the port and security.protocol"),
        ("TLS", lambda s: {**s.password(), **s.tls(), "security.protocol": "SASL_SSL"}, "a SASL_SSL listener"),
        ("TLS", lambda s: s.tls(**{"ssl.ca.location": str(s.other_ca)}), "is not trusted"),
    ],
)
def test_untrusted_client_gets_authentication_error(
    listener: str, properties: Callable[[Secured], dict[str, Any]], said: str, secured: Secured
) -> None:
    one = channel(secured, listener, properties(secured))
    try:
        with pytest.raises(AuthenticationError, match=said) as raised:
            one.connect()
    finally:
        one.close()
    assert "wrong" not in str(raised.value)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_user_name_may_contain_separators(mechanism: str, secured: Secured) -> None:
    one = channel(secured, "PASSWORD", {**secured.password(mechanism), "sasl.username": "al,ice=x"})
    try:
        one.connect()
    finally:
        one.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_interrupted_login_to_broker_is_retriable(mechanism: str, secured: Secured) -> None:
    """A broker that shuts down closes connections at any point of the login."""
    interrupted: list[bytes] = []

    def interrupt(request: bytes) -> None:
        if request[4:6] == b"\x00\x24" and not interrupted:  # SaslAuthenticate
            interrupted.append(request)
            raise ConnectionAbortedError

    with Cable(secured.ports["PASSWORD"]) as cable:
        cable.on_request = interrupt
        config = {"zookeeper.connect": "z:1", "group.id": "g", **secured.password(mechanism)}
        security = Security.from_config(ConsumerConfig.from_dict(config))
        one = Connecting("test", 10, security).channel(Endpoint("127.0.0.1", cable.port))
        try:
            with pytest.raises(BrokerUnavailableError):
                one.connect()
            one.connect()
        finally:
            one.close()
    assert len(interrupted) == 1


def write_credentials(secured: Secured, password: str) -> None:
    """Set the SCRAM password of ``alice``. Source: Kafka 3.9 AdminZkClient.changeUserOrUserClientIdConfig."""
    credentials = {"SCRAM-SHA-256": scram("sha256", password), "SCRAM-SHA-512": scram("sha512", password)}
    with zookeeper_client(secured.cluster.zookeeper_connect) as zk:
        zk.set("/config/users/alice", json.dumps({"version": 1, "config": credentials}).encode())
        change = json.dumps({"version": 2, "entity_path": "users/alice"})
        zk.create("/config/changes/config_change_", change.encode(), sequence=True)


def test_login_that_was_accepted_before_is_repeated(
    secured: Secured,
    consumer: Callable[..., ZookeeperConsumerConnector],
    unique: Callable[[str], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker loses its credentials for a while: a running consumer continues, and a new one is rejected."""
    name = secured.cluster.create_topic(unique("t"))
    connector = consumer(secured.password("SCRAM-SHA-256"))
    [stream] = connector.create_message_streams({name: 1})[name]
    produce(secured.cluster.admin, name, 0, numbers(0, 10))
    take(stream, 10)
    accepted = channel(secured, "PASSWORD", secured.password("SCRAM-SHA-256"))
    accepted.connect()
    accepted.disconnect()

    def is_refused() -> bool:
        one = channel(secured, "PASSWORD", secured.password("SCRAM-SHA-256"))
        try:
            one.connect()
        except AuthenticationError:
            return True
        finally:
            one.close()
        return False

    write_credentials(secured, "another")
    try:
        wait_for(is_refused, what="the new credentials on the broker")
        with pytest.raises(BrokerUnavailableError, match="SCRAM-SHA-256 authentication of user 'alice' with broker"):
            accepted.connect()
        assert connector._runtime is not None
        [fetcher] = connector._runtime.fetchers._fetchers.values()
        assert fetcher._requests._channel._socket is not None
        fetcher._requests._channel._socket.shutdown(socket.SHUT_RDWR)
        wait_for(lambda: "were accepted before" in caplog.text, what="the rejection of the consumer's login")
    finally:
        write_credentials(secured, PASSWORD)
    produce(secured.cluster.admin, name, 0, numbers(10, 20))
    assert values(take(stream, 10)) == numbers(10, 20)
    accepted.close()


def test_stream_raises_if_brokers_reject_login(
    secured: Secured, consumer: Callable[..., ZookeeperConsumerConnector], unique: Callable[[str], str]
) -> None:
    name = secured.cluster.create_topic(unique("t"))
    connector = consumer(secured.password(password="wrong"))
    [stream] = connector.create_message_streams({name: 1})[name]

    with pytest.raises(AuthenticationError, match="authentication of user 'alice'"):
        next(stream)


def test_client_without_required_certificate_is_rejected(secured: Secured) -> None:
    one = channel(secured, "MUTUAL", secured.tls())
    try:
        with pytest.raises(ZkConsumerError):
            one.connect()
    finally:
        one.close()


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"security.protocol": "SASL_SSL"}, "requires sasl.username and sasl.password"),
        ({"security.protocol": "TLS"}, "property 'security.protocol' must be .*, got 'TLS'"),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/none.pem"},
            "must be the path of an existing PEM file, got '/none.pem'",
        ),
        ({"security.protocol": "SSL", "ssl.ca.location": __file__}, "could not load ssl.ca.location = '.*': "),
        (
            {"zookeeper.ssl.client.enable": True, "zookeeper.ssl.ca.location": __file__},
            "could not load zookeeper.ssl.ca.location = '.*': ",
        ),
        (
            {"zookeeper.ssl.client.enable": True, "zookeeper.ssl.ca.location": "/none.pem"},
            "must be the path of an existing PEM file, got '/none.pem'",
        ),
        ({"zookeeper.auth.digest": PASSWORD}, "zookeeper.auth.digest must have the form user:password"),
        ({"zookeeper.sasl.mechanism": "DIGEST-MD5"}, "requires zookeeper.sasl.username"),
        ({"zookeeper.sasl.mechanism": "GSSAPI"}, "requires the module kerberos: pip install pykerberos"),
    ],
)
def test_inconsistent_security_settings_are_rejected(
    properties: dict[str, object],
    said: str,
    consumer: Callable[..., ZookeeperConsumerConnector],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "kerberos", None)  # simulates a missing installation
    with pytest.raises(ConfigurationError, match=said) as raised:
        consumer(properties).create_message_streams({"t": 1})
    assert PASSWORD not in str(raised.value)


def test_authenticated_znodes_have_acls_of_jvm(
    secured: Secured, consumer: Callable[..., ZookeeperConsumerConnector], unique: Callable[[str], str]
) -> None:
    name = secured.cluster.create_topic(unique("t"))
    produce(secured.cluster.admin, name, 0, numbers(0, 10))
    connector = consumer({"zookeeper.auth.digest": f"alice:{PASSWORD}", "consumer.id": "c"})
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 5)
    connector.commit_offsets()
    group = connector.config.group_id
    with zookeeper_client(secured.cluster.zookeeper_connect) as zk:

        def rights(path: str) -> set[tuple[str, tuple[str, ...]]]:
            acls, _ = zk.get_acls(f"/consumers/{group}{path}")
            return {(acl.id.scheme, tuple(acl.acl_list)) for acl in acls}

        everybody, ours = {("world", ("ALL",))}, {("digest", ("ALL",)), ("world", ("READ",))}
        assert rights("") == rights("/ids") == rights(f"/ids/{group}_c") == everybody
        assert rights(f"/owners/{name}/0") == rights(f"/offsets/{name}/0") == ours
        assert zk.get(f"/consumers/{group}/offsets/{name}/0")[0] == b"5"


def test_unwritable_znode_is_named_with_remedy(
    secured: Secured, consumer: Callable[..., ZookeeperConsumerConnector], unique: Callable[[str], str]
) -> None:
    name = secured.cluster.create_topic(unique("t"))
    produce(secured.cluster.admin, name, 0, numbers(0, 10))
    owner = consumer({"zookeeper.auth.digest": f"alice:{PASSWORD}"})
    [stream] = owner.create_message_streams({name: 1})[name]
    take(stream, 5)
    owner.commit_offsets()
    owner.shutdown()
    group = owner.config.group_id

    stranger = consumer(
        {
            "group.id": group,
            "rebalance.backoff.ms": 100,
            "zookeeper.session.timeout.ms": 2000,
            "rebalance.max.retries": 2,
        }
    )
    with pytest.raises(
        ZkConsumerError, match=rf"/consumers/{group}/owners/{name}/0 was denied by.*zookeeper\.auth\.digest"
    ):
        stranger.create_message_streams({name: 1})
