"""Tests of ConsumerConfig: names, defaults, rules and error messages of the old properties."""

from __future__ import annotations

import codecs
import copy
import dataclasses
import logging
import pickle
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import javaproperties
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from zkconsumer import ConsumerConfig, ZkConsumerError, create_consumer
from zkconsumer.config.consumer_config import read_properties
from zkconsumer.config.properties import WITHOUT_EFFECT, property_names, property_table
from zkconsumer.config.properties_file import parse_properties
from zkconsumer.errors import ConfigurationError

REQUIRED = {"group.id": "g", "zookeeper.connect": "h:2181"}

#: Defaults of Kafka 1.1 (ConsumerConfig and ZKConfig), without properties that zkconsumer does not support.
OLD_DEFAULTS: dict[str, object] = {
    "consumer.id": None,
    "client.id": "g",
    "zookeeper.session.timeout.ms": 6000,
    "zookeeper.connection.timeout.ms": 6000,
    "zookeeper.sync.time.ms": 2000,
    "socket.timeout.ms": 30_000,
    "fetch.message.max.bytes": 1024 * 1024,
    "num.consumer.fetchers": 1,
    "auto.commit.enable": True,
    "auto.commit.interval.ms": 60_000,
    "queued.max.message.chunks": 2,
    "rebalance.max.retries": 4,
    "rebalance.backoff.ms": 2000,
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 100,
    "refresh.leader.backoff.ms": 200,
    "offsets.storage": "zookeeper",
    "auto.offset.reset": "largest",
    "consumer.timeout.ms": -1,
    "partition.assignment.strategy": "range",
    "exclude.internal.topics": True,
    "dual.commit.enabled": False,  # true if the offsets are in Kafka
    "offsets.channel.backoff.ms": 1000,
    "offsets.channel.socket.timeout.ms": 10_000,
    "offsets.commit.max.retries": 5,
}

#: Defaults of properties that are new, or that had another default in the old consumer.
OWN_DEFAULTS: dict[str, object] = {
    "bootstrap.servers": "",
    "socket.receive.buffer.bytes": -1,  # 65536 in the old consumer, which is slower than the automatic size
    "isolation.level": "read_uncommitted",
    "check.crcs": True,
    "corrupt.record.policy": "raise",
    "decompressed.batch.max.bytes": 128 << 20,
    "fetch.max.bytes": 50 << 20,
    "queued.max.bytes": 256 << 20,
    "auto.offset.reset.new.partitions": "inherit",
    "metadata.max.age.ms": 30_000,
    "offsets.commit.unchanged": False,
    "roundrobin.order": "1.0",
    "security.protocol": "PLAINTEXT",
    "ssl.ca.location": None,
    "ssl.certificate.location": None,
    "ssl.key.location": None,
    "ssl.key.password": None,
    "ssl.endpoint.identification.algorithm": "https",
    "sasl.mechanism": "PLAIN",
    "sasl.username": None,
    "sasl.password": None,
    "zookeeper.ssl.client.enable": False,
    "zookeeper.ssl.ca.location": None,
    "zookeeper.ssl.certificate.location": None,
    "zookeeper.ssl.key.location": None,
    "zookeeper.ssl.key.password": None,
    "zookeeper.ssl.endpoint.identification.algorithm": "https",
    "zookeeper.sasl.mechanism": None,
    "zookeeper.sasl.username": None,
    "zookeeper.sasl.password": None,
    "zookeeper.auth.digest": None,
}


def config(strict: bool = True, **settings: object) -> ConsumerConfig:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return ConsumerConfig.from_dict(REQUIRED | given, strict=strict)


def unpickled(state: Any) -> ConsumerConfig:
    built = ConsumerConfig.__new__(ConsumerConfig)
    built.__setstate__(state)
    return built


def value_of(built: ConsumerConfig, name: str) -> object:
    return getattr(built, name.replace(".", "_"))


@pytest.mark.parametrize("name", OLD_DEFAULTS)
def test_defaults_equal_those_of_original(name: str) -> None:
    assert value_of(config(), name) == OLD_DEFAULTS[name]


@pytest.mark.parametrize("name", OWN_DEFAULTS)
def test_defaults_of_new_properties(name: str) -> None:
    assert value_of(config(), name) == OWN_DEFAULTS[name]


def test_pickled_config_has_values_by_property() -> None:
    built = config(client_id="me", fetch_max_bytes=7, sasl_password="p", security_protocol="SASL_SSL")

    assert pickle.loads(pickle.dumps(built)) == copy.copy(built) == built
    assert built.__getstate__() == {name: value_of(built, name) for name in property_names()}


def test_pickled_config_without_property_has_its_default() -> None:
    earlier = config(group_id="stored", offsets_storage="kafka")
    state = earlier.__getstate__()
    del state["fetch.max.bytes"], state["dual.commit.enabled"]

    assert unpickled({**state, "property.of.later.version": 1}) == earlier


def test_every_property_is_in_a_table() -> None:
    assert sorted(property_names()) == sorted([*REQUIRED, *OLD_DEFAULTS, *OWN_DEFAULTS])


def test_property_names_are_attributes_with_dots() -> None:
    assert [name.replace(".", "_") for name in property_names()] == [f.name for f in dataclasses.fields(ConsumerConfig)]


@pytest.mark.parametrize("missing", REQUIRED)
def test_missing_property_has_message_of_original(missing: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        ConsumerConfig.from_dict({name: value for name, value in REQUIRED.items() if name != missing})

    assert str(raised.value) == f"Missing required property '{missing}'"


@pytest.mark.parametrize("properties", ["consumer.properties", None, ["group.id"]])
def test_other_type_than_dict_is_rejected(properties: Any) -> None:
    kind = type(properties).__name__
    with pytest.raises(ConfigurationError, match=f"must be a dict, got a value of type {kind}; to read a file, use"):
        ConsumerConfig.from_dict(properties)


def test_topics_of_other_type_than_dict_are_rejected() -> None:
    consumer = create_consumer(config())
    topics: Any = "orders"

    with pytest.raises(ConfigurationError, match="topic_count must be a dict such as {'orders': 1}, got 'orders'"):
        consumer.create_message_streams(topics)


def test_none_counts_as_not_set() -> None:
    with pytest.raises(ConfigurationError, match=r"Missing required property 'group\.id'"):
        ConsumerConfig.from_dict({**REQUIRED, "group.id": None})

    assert config(consumer_timeout_ms=None).consumer_timeout_ms == -1


def test_invalid_value_raises_configuration_error() -> None:
    assert issubclass(ConfigurationError, ValueError)
    assert issubclass(ConfigurationError, ZkConsumerError)


def test_config_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().group_id = "other"  # type: ignore[misc]


# ---- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("fetch.min.bytes", 7, 7),
        ("fetch.min.bytes", "7", 7),
        ("fetch.min.bytes", " 7\t", 7),
        ("fetch.min.bytes", "+7", 7),
        ("fetch.min.bytes", "007", 7),
        ("fetch.min.bytes", "0", 0),
        ("fetch.message.max.bytes", "2147483647", 2147483647),
        ("consumer.timeout.ms", "-1", -1),
        ("consumer.timeout.ms", 0, 0),
        ("auto.commit.enable", True, True),
        ("auto.commit.enable", False, False),
        ("auto.commit.enable", " false ", False),
        ("auto.offset.reset", "smallest", "smallest"),
        ("isolation.level", "read_committed", "read_committed"),
        ("client.id", "Az09._-", "Az09._-"),
        ("zookeeper.connect", "a:1,b:2/chroot/path", "a:1,b:2/chroot/path"),
        ("partition.assignment.strategy", "range", "range"),
        ("offsets.storage", "ZooKeeper", "zookeeper"),
    ],
)
def test_valid_value_is_parsed(name: str, given: object, read: object) -> None:
    assert value_of(ConsumerConfig.from_dict({**REQUIRED, name: given}), name) == read


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("fetch.min.bytes", "x"),
        ("fetch.min.bytes", ""),
        ("fetch.min.bytes", "1_000"),
        ("fetch.min.bytes", "1.0"),
        ("fetch.min.bytes", 1.5),
        ("fetch.min.bytes", "1e3"),
        ("fetch.min.bytes", "-1"),
        ("fetch.min.bytes", "٣"),  # int() accepts digits of other scripts, Java does not
        ("fetch.min.bytes", "2147483648"),
        ("fetch.min.bytes", True),
        ("fetch.message.max.bytes", "0"),
        ("num.consumer.fetchers", "0"),
        ("queued.max.message.chunks", "0"),
        ("rebalance.max.retries", "0"),
        ("zookeeper.session.timeout.ms", "0"),
        ("auto.commit.interval.ms", "0"),
        ("consumer.timeout.ms", "-2"),
        ("auto.commit.enable", "True"),
        ("auto.commit.enable", "yes"),
        ("auto.commit.enable", 1),
        ("auto.commit.enable", ""),
        ("auto.offset.reset", "Smallest"),
        ("isolation.level", "committed"),
        ("zookeeper.connect", " "),
    ],
)
def test_malformed_value_names_property(name: str, given: object) -> None:
    with pytest.raises(ConfigurationError) as raised:
        ConsumerConfig.from_dict({**REQUIRED, name: given})

    assert name in str(raised.value)


@pytest.mark.parametrize("character", "/\\,\0:\"';*? \t\r\n=é")
@pytest.mark.parametrize("name", ["group.id", "client.id", "consumer.id"])
def test_illegal_id_is_rejected(name: str, character: str) -> None:
    text = f"a{character}b"
    with pytest.raises(ConfigurationError) as raised:
        ConsumerConfig.from_dict({**REQUIRED, name: text})

    assert str(raised.value) == (
        f"property {name!r} must be a name that consists of ASCII letters, digits, '.', '_' and '-', got {text!r}"
    )


def test_legal_ids_are_accepted() -> None:
    built = ConsumerConfig.from_dict({**REQUIRED, "group.id": "valid-GROUP_iDs.ar6", "client.id": "VaL1d_0-9_."})

    assert (built.group_id, built.client_id) == ("valid-GROUP_iDs.ar6", "VaL1d_0-9_.")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("auto.offset.reset", "'smallest' or 'largest'"),
        ("offsets.storage", "'zookeeper' or 'kafka'"),
        ("partition.assignment.strategy", "'range', 'roundrobin' or 'flink'"),
    ],
)
def test_invalid_choice_lists_words(name: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        ConsumerConfig.from_dict({**REQUIRED, name: "other"})

    assert str(raised.value) == f"property {name!r} must be {words}, got 'other'"


def test_socket_timeout_must_exceed_fetch_wait() -> None:
    with pytest.raises(
        ConfigurationError, match=r"'socket\.timeout\.ms' must be at least fetch\.wait\.max\.ms = 100, got '50'"
    ):
        config(socket_timeout_ms=50)

    assert config(socket_timeout_ms=100).socket_timeout_ms == 100


# ---- derived defaults ------------------------------------------------------------------------------


def test_unset_timeouts_follow_others() -> None:
    derived = config(zookeeper_session_timeout_ms=4000, zookeeper_sync_time_ms=500)
    own = config(
        zookeeper_session_timeout_ms=4000,
        zookeeper_connection_timeout_ms=1000,
        zookeeper_sync_time_ms=500,
        rebalance_backoff_ms=100,
        client_id="me",
    )

    assert (derived.zookeeper_connection_timeout_s, derived.rebalance_backoff_s, derived.client_id) == (4.0, 0.5, "g")
    assert (own.zookeeper_connection_timeout_s, own.rebalance_backoff_s, own.client_id) == (1.0, 0.1, "me")


def test_seconds_are_those_of_milliseconds() -> None:
    names = [name for name in dir(ConsumerConfig) if name.endswith("_s") and not name.startswith("_")]
    built = config(consumer_timeout_ms=1500)

    assert len(names) > 1
    assert [name for name in names if getattr(built, name) != getattr(built, f"{name[:-2]}_ms") / 1000] == []
    assert built.consumer_timeout_s == 1.5
    assert config().consumer_timeout_s is None


def test_isolation_level_sets_read_committed() -> None:
    assert not config().read_committed
    assert config(isolation_level="read_committed").read_committed


def test_kafka_storage_implies_dual_commit() -> None:
    assert config(offsets_storage="KAFKA").offsets_storage == "kafka"  # case-insensitive, as in the JVM
    assert config(offsets_storage="kafka").dual_commit_enabled is True
    assert config(offsets_storage="kafka", dual_commit_enabled="false").dual_commit_enabled is False


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_property_without_effect_is_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "zkconsumer.config"):
        ConsumerConfig.from_dict({**REQUIRED, name: "1"}, strict=True)

    [record] = caplog.records
    assert name in record.getMessage()
    assert WITHOUT_EFFECT[name] in record.getMessage()


@pytest.mark.parametrize(
    "name", ["sasl.password", "ssl.key.password", "zookeeper.sasl.password", "zookeeper.auth.digest"]
)
def test_repr_masks_secrets(name: str) -> None:
    switches = {
        "sasl.password": {"security.protocol": "SASL_SSL"},
        "ssl.key.password": {"security.protocol": "SSL", "ssl.certificate.location": __file__},
        "zookeeper.sasl.password": {"zookeeper.sasl.mechanism": "DIGEST-MD5"},
    }
    built = ConsumerConfig.from_dict({**REQUIRED, **switches.get(name, {}), name: "me:hidden-from-you"})

    assert value_of(built, name) == "me:hidden-from-you"
    assert "hidden-from-you" not in repr(built)


# ---- security --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "texts"),
    [
        (
            {"ssl.ca.location": __file__},
            [
                "property 'ssl.ca.location' has no effect without security.protocol = SSL or SASL_SSL; set it, or "
                "remove ssl.ca.location"
            ],
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "ssl.endpoint.identification.algorithm": "https"},
            [
                "property 'ssl.endpoint.identification.algorithm' has no effect without security.protocol = SSL or "
                "SASL_SSL; "
            ],
        ),
        (
            {"security.protocol": "SSL", "sasl.mechanisms": "PLAIN", "sasl.password": "hidden-from-you"},
            [
                "property 'sasl.mechanism' has no effect without security.protocol = SASL_PLAINTEXT or SASL_SSL; ",
                "property 'sasl.password' has no effect without security.protocol = SASL_PLAINTEXT or SASL_SSL; ",
            ],
        ),
        (
            {"security.protocol": "SSL", "ssl.key.location": __file__},
            ["property 'ssl.key.location' has no effect without ssl.certificate.location; set it, or remove "],
        ),
        (
            {"zookeeper.ssl.ca.location": __file__, "zookeeper.ssl.client.enable": "false"},
            ["property 'zookeeper.ssl.ca.location' has no effect without zookeeper.ssl.client.enable = true; "],
        ),
        (
            {"zookeeper.ssl.client.enable": True, "zookeeper.ssl.key.password": "hidden-from-you"},
            ["property 'zookeeper.ssl.key.password' has no effect without zookeeper.ssl.certificate.location; "],
        ),
        (
            {"zookeeper.sasl.username": "alice", "zookeeper.sasl.password": "hidden-from-you"},
            [
                "property 'zookeeper.sasl.username' has no effect without zookeeper.sasl.mechanism = DIGEST-MD5; ",
                "property 'zookeeper.sasl.password' has no effect without zookeeper.sasl.mechanism = DIGEST-MD5; ",
            ],
        ),
        (
            {"socket.timeout.ms": 50, "fetch.min.bytes": "x", "ssl.ca.location": __file__, "security.protocol": "TLS"},
            [
                "property 'socket.timeout.ms' must be at least fetch.wait.max.ms",
                "property 'security.protocol' must be ",
                "property 'fetch.min.bytes' must be ",
            ],
        ),
    ],
)
def test_contradicting_properties_are_rejected(properties: dict[str, object], texts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        ConsumerConfig.from_dict({**REQUIRED, **properties})

    problems = raised.value.problems
    assert len(problems) == len(texts)
    assert all(any(problem.startswith(text) for _, problem in problems) for text in texts), problems
    assert "hidden-from-you" not in str(raised.value)


@pytest.mark.parametrize("path", ["/none.pem", "", "a\0b"])
@pytest.mark.parametrize("name", [name for name in property_names() if name.endswith(".location")])
def test_missing_file_is_rejected(name: str, path: str) -> None:
    with pytest.raises(ConfigurationError, match=f"property '{name}' must be the path of an existing PEM file, got "):
        ConsumerConfig.from_dict({**REQUIRED, name: path})


def test_defaults_of_security_properties_need_no_switch() -> None:
    assert config(security_protocol="PLAINTEXT", zookeeper_ssl_client_enable=False) == config()


@given(st.text("ab=:# !\\\t\f\r\nu0041\x85\xe9", max_size=40))
def test_properties_are_those_of_javaproperties(content: str) -> None:
    """javaproperties is slow for continued lines, and otherwise the reference.

    A comment after an empty line that is continued is none there, and none in Java 8. It is one in current Java.
    """
    assume(not re.search("(^|[\r\n])[ \t\f]*(\\\\[\r\n]+[ \t\f]*)+[#!]", content))
    try:
        expected = javaproperties.loads(content)
    except ValueError:
        with pytest.raises(ValueError, match="escape"):
            parse_properties(content.encode("latin-1"))
    else:
        assert parse_properties(content.encode("latin-1")) == expected


def test_passwords_keep_blanks_at_their_ends(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "group.id=g \nzookeeper.connect=h:2181 \nsecurity.protocol=SASL_SSL \n"
        "sasl.username= alice \nsasl.password=\\ two  \nzookeeper.auth.digest=alice: p \n",
    )

    built = ConsumerConfig.from_properties(path)

    assert (built.group_id, built.sasl_username, built.security_protocol) == ("g", "alice", "SASL_SSL")
    assert (built.sasl_password, built.zookeeper_auth_digest) == (" two  ", "alice: p ")


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "line",
    [
        "sasl.pasword=hidden-from-you",
        "sasl.jaas.config=hidden-from-you",
        "zookeeper.auth.digst=alice:hidden-from-you",
        "sasl.password\xa0hidden-from-you",
        "sasl.password;hidden-from-you",
    ],
)
def test_value_of_unknown_property_is_not_shown(
    line: str, strict: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, f"group.id=g\nzookeeper.connect=h:2181\n{line}\n")
    with caplog.at_level(logging.DEBUG, "zkconsumer"):
        try:
            shown = repr(ConsumerConfig.from_properties(path, strict=strict))
        except ConfigurationError as error:
            shown = str(error)

    assert "hidden-from-you" not in shown + caplog.text
    assert re.split("[=;\xa0]", line)[0] in shown + caplog.text


@pytest.mark.parametrize(
    "servers",
    ["", " ", ",", ":abc", "h:abc", "h:0", "h:99999", "h:1,:2", "h:1:2", "http://h:1", "h 1", "[::1", "/kafka"],
)
def test_invalid_servers_are_rejected(servers: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        config(zookeeper_connect=servers)
    assert "property 'zookeeper.connect' must be a list such as 'host:port,host:port/chroot', got " in str(raised.value)

    if not servers.strip():
        assert config(bootstrap_servers=servers).bootstrap_servers == ""  # the same as without the property
        return
    with pytest.raises(ConfigurationError) as raised:
        config(bootstrap_servers=servers)
    assert "property 'bootstrap.servers' must be a list such as 'host:port,host:port', got " in str(raised.value)


def test_servers_without_port() -> None:
    assert config(zookeeper_connect="zk1, [::1] ,zk_3:2182/a/b").zookeeper_connect == "zk1,[::1],zk_3:2182/a/b"
    with pytest.raises(ConfigurationError, match=r"'bootstrap\.servers' must be .*: invalid server 'localhost'$"):
        config(bootstrap_servers="h:1,localhost")


# ---- documentation ---------------------------------------------------------------------------------


def test_table_describes_every_property() -> None:
    rows = property_table()

    assert [row.name for row in rows] == [*property_names(), *WITHOUT_EFFECT]
    assert [row.name for row in rows if not (row.type and row.meaning.endswith(".") and row.counterpart)] == []


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("fetch.min.bytes", "x", "property 'fetch.min.bytes' must be an integer between 0 and 2147483647, got 'x'"),
        ("check.crcs", "yes", "property 'check.crcs' must be 'true' or 'false', got 'yes'"),
        (
            "sasl.mechanism",
            "NTLM",
            "property 'sasl.mechanism' must be 'PLAIN', 'SCRAM-SHA-256' or 'SCRAM-SHA-512', got 'NTLM'",
        ),
        ("group.id", "..", "property 'group.id' must be a name with at least one character other than '.', got '..'"),
        (
            "bootstrap.servers",
            "h",
            "property 'bootstrap.servers' must be a list such as 'host:port,host:port', got 'h': invalid server 'h'",
        ),
    ],
)
def test_error_names_property_valid_values_and_value(name: str, given: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        ConsumerConfig.from_dict({**REQUIRED, name: given})

    assert str(raised.value) == text


# ---- unknown keys ----------------------------------------------------------------------------------


def test_unknown_property_is_logged_with_suggestion(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "zkconsumer.config"):
        built = config(strict=False, auto_comit_enable=False)

    assert built.auto_commit_enable is True
    [record] = caplog.records
    assert "auto.comit.enable" in record.getMessage()
    assert "did you mean 'auto.commit.enable'?" in record.getMessage()


def test_unknown_property_without_suggestion(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "zkconsumer.config"):
        config(strict=False, x="y")

    [record] = caplog.records
    assert "did you mean" not in record.getMessage()


def test_strict_rejects_unknown_property() -> None:
    with pytest.raises(ConfigurationError) as raised:
        config(auto_comit_enable=False)

    assert str(raised.value) == "unknown property 'auto.comit.enable'; did you mean 'auto.commit.enable'?"


def test_strict_error_lists_all_problems_with_lines(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "# old job\ngroup.id=g\nzookeeper.connect=h:2181\nfetch.size=\\\n  100\n\nfetch.min.bytes=x\nGROUP.ID=h\n"
        "kafka.metrics.reporters=a\nauto.commit.enable=True\n",
    )

    with pytest.raises(ConfigurationError) as raised:
        ConsumerConfig.from_properties(path, {"auto.offset.reset": "earliest"}, strict=True)

    assert str(raised.value).splitlines() == [
        "property 'auto.offset.reset' must be 'smallest' or 'largest', got 'earliest': its counterpart is 'smallest'",
        f"{path}:4: unknown property 'fetch.size'; its counterpart is 'fetch.message.max.bytes'",
        f"{path}:7: property 'fetch.min.bytes' must be an integer between 0 and 2147483647, got 'x'",
        f"{path}:8: unknown property 'GROUP.ID'; did you mean 'group.id'?",
        f"{path}:10: property 'auto.commit.enable' must be 'true' or 'false', got 'True'",
    ]


def test_unknown_property_is_logged_with_its_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, "group.id=g\nzookeeper.connect=h:2181\nfetch.size=100\n")

    with caplog.at_level(logging.WARNING, "zkconsumer.config"):
        built = ConsumerConfig.from_properties(path)

    assert f"{path}:3" in caplog.text
    assert type(built.group_id) is type(built.zookeeper_connect) is str  # Spark's checkpoints contain them


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", ": Missing required property 'group.id'"),
        ("group.id=g\nssl.ca.location=FILE", ":3: property 'ssl.ca.location' has no effect without security.protocol"),
        ("group.id=g\nsocket.timeout.ms=50", ":3: property 'socket.timeout.ms' must be at least fetch.wait.max.ms"),
        (
            "group.id=g\nfetch.wait.max.ms=60000",
            ":3: property 'fetch.wait.max.ms' must be at most socket.timeout.ms = 30000, got '60000'; otherwise",
        ),
        (
            "group.id=g\nssl.ca.location=/no #1/ca.pem",
            ":3: property 'ssl.ca.location' must be the path of an existing PEM file, got '/no #1/ca.pem'",
        ),
        (
            "group.id=g # my group",
            ":2: property 'group.id' must be a name that consists of ASCII letters, digits, '.', "
            "'_' and '-', got 'g # my group': a comment must start on its own line",
        ),
        (
            "group.id=g\nauto.offset.reset=latest",
            ":3: property 'auto.offset.reset' must be 'smallest' or 'largest', got "
            "'latest': its counterpart is 'largest'",
        ),
    ],
)
def test_problem_names_file_and_line(line: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"zookeeper.connect=h:2181\n{line.replace('FILE', __file__)}\n")

    with pytest.raises(ConfigurationError) as raised:
        ConsumerConfig.from_properties(path)

    assert str(raised.value).startswith(f"{path}{said}")
    assert ("a comment must start" in str(raised.value)) is ("my group" in line)


@pytest.mark.parametrize(
    ("content", "password", "is_reported"),
    [
        ("sasl.password=pässword".encode(), "pÃ¤ssword", True),
        ("sasl.password=pässword".encode("iso-8859-1"), "pässword", True),
        (b"sasl.password=p\\u00e4ssword", "pässword", False),
        ("# für Bestellungen\nsasl.password=password".encode("iso-8859-1"), "password", False),
        (codecs.BOM_UTF8 + "sasl.password=pässword".encode(), "pässword", False),
    ],
    ids=["utf-8", "iso-8859-1", "escaped", "comment", "mark"],
)
def test_value_with_ambiguous_encoding_is_reported(
    content: bytes, password: str, is_reported: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "consumer.properties"
    path.write_bytes(content + b"\ngroup.id=g\nzookeeper.connect=h:2181\nsecurity.protocol=SASL_SSL\n")

    with caplog.at_level(logging.WARNING, "zkconsumer.config"):
        assert ConsumerConfig.from_properties(path).sasl_password == password

    assert ("property_encoding_unclear" in caplog.text) is is_reported
    raises = pytest.raises(ConfigurationError, match=":1: property 'sasl.password' contains non-ASCII")
    with raises if is_reported else nullcontext():
        ConsumerConfig.from_properties(path, strict=True)


def test_property_name_that_is_not_a_string_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="property names must be strings, got 1"):
        ConsumerConfig.from_dict({**REQUIRED, 1: "x"})  # type: ignore[dict-item]


def test_unreadable_file_has_no_chained_traceback(tmp_path: Path) -> None:
    invalid = written(tmp_path, "group.id=\\u12\n")
    for path in (tmp_path / "missing", invalid):
        with pytest.raises(ConfigurationError) as raised:
            ConsumerConfig.from_properties(path)
        assert str(path) in str(raised.value)
        assert raised.value.__cause__ is None
        assert raised.value.__suppress_context__


def test_external_properties_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "zkconsumer.config"):
        config(external_something="x")

    assert not caplog.records


@pytest.mark.parametrize("attribute", ["group_id", "zookeeper_connect"])
def test_properties_with_underscores_are_unknown(attribute: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown property {attribute!r}"):
        ConsumerConfig.from_dict({**REQUIRED, attribute: "x"}, strict=True)


# ---- files -----------------------------------------------------------------------------------------


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "consumer.properties"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("latin-1"))
    return path


def test_properties_file_of_kafka_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "# see kafka.consumer.ConsumerConfig for more details\n\n"
        "zookeeper.connect=127.0.0.1:2181\n\n"
        "# timeout in ms for connecting to zookeeper\n"
        "zookeeper.connection.timeout.ms=6000\n\n"
        "#consumer group id\ngroup.id=test-consumer-group\n\n"
        "#consumer timeout\n#consumer.timeout.ms=5000\n",
    )

    built = ConsumerConfig.from_properties(path, strict=True)

    assert (built.group_id, built.zookeeper_connect) == ("test-consumer-group", "127.0.0.1:2181")
    assert (built.zookeeper_connection_timeout_ms, built.consumer_timeout_ms) == (6000, -1)


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a\t=\tb", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("! comment\n# comment\r\na=b\r\n", {"a": "b"}),
        ("a=1\na=2\n", {"a": "2"}),
        ("hosts=h1:2181,\\\n      h2:2181,\\\r\n  h3:2181\n", {"hosts": "h1:2181,h2:2181,h3:2181"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("# no continuation of a comment \\\na=b", {"a": "b"}),
        ("a=\\u0041\\u00e9\\u20ac", {"a": "Aé€"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=caf\xe9", {"a": "café"}),  # the format is Latin-1
        (r"a\ b\:c\=d=e", {"a b:c=d": "e"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\\n  # c \nd=e", {"a": "b# c ", "d": "e"}),
        ("a=b\\\\\\\n c\\", {"a": "b\\c"}),
        ("  \\\n  a=b", {"a": "b"}),
        ("\xef\xbb\xbfa=\xc3\xa9\nb=c", {"a": "é", "b": "c"}),  # a byte order mark of UTF-8
        ("a=\xc3\xa9\x0c\x85\x1c", {"a": "\xc3\xa9\x0c\x85\x1c"}),  # no ends of lines
        (r"a=x\ty\nz\r\f\q", {"a": "x\ty\nz\r\fq"}),
        ("", {}),
    ],
)
def test_properties_file_is_parsed_like_java(tmp_path: Path, content: str, read: dict[str, str]) -> None:
    assert read_properties(written(tmp_path, content)) == read


@pytest.mark.parametrize(
    "content",
    [
        b"a=" + b"x" * 10_000_000,
        pytest.param(b"a=" + b"x\\\n" * 3_333_333, marks=pytest.mark.slow),
        pytest.param(b"x" * 10_000_000, marks=pytest.mark.slow),
    ],
    ids=["value", "continued lines", "name"],
)
@pytest.mark.timeout(60)
def test_long_line_is_read_in_linear_time(content: bytes, tmp_path: Path) -> None:
    path = written(tmp_path, b"group.id=g\nzookeeper.connect=h:1\n" + content)

    assert sum(map(len, read_properties(path).popitem())) >= 3_333_333
    ConsumerConfig.from_properties(path)


def test_values_of_file_are_trimmed(tmp_path: Path) -> None:
    path = written(tmp_path, "group.id = g \t\nzookeeper.connect=h:2181\nauto.commit.enable=false \n")

    built = ConsumerConfig.from_properties(path)

    assert (built.group_id, built.auto_commit_enable) == ("g", False)


def test_overrides_replace_values_of_file(tmp_path: Path) -> None:
    path = written(tmp_path, "group.id=file\nzookeeper.connect=h:2181\nfetch.min.bytes=5\n")

    built = ConsumerConfig.from_properties(path, {"group.id": "mine", "consumer.timeout.ms": 9})

    assert (built.group_id, built.fetch_min_bytes, built.consumer_timeout_ms) == ("mine", 5, 9)


def test_strict_applies_to_files(tmp_path: Path) -> None:
    path = written(tmp_path, "group.id=g\nzookeeper.connect=h:2181\nfetch.min.byte=5\n")

    with pytest.raises(
        ConfigurationError, match=r"unknown property 'fetch\.min\.byte'; did you mean 'fetch\.min\.bytes'"
    ):
        ConsumerConfig.from_properties(path, strict=True)


def test_missing_file_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"'/nowhere/consumer\.properties': No such file"):
        ConsumerConfig.from_properties("/nowhere/consumer.properties")


def test_file_with_invalid_escape_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "a=\\u12x4\n")

    with pytest.raises(ConfigurationError) as raised:
        read_properties(path)

    assert str(path) in str(raised.value)
