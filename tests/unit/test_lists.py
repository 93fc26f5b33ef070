"""Tests that all lists in properties, options and arguments are split in the same way."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer import ConsumerConfig
from zkconsumer.config.types import Servers, split_list
from zkconsumer.errors import ConfigurationError
from zkconsumer.message import Endpoint
from zkconsumer.metadata.bootstrap import parse_bootstrap
from zkconsumer.spark.options.types import Columns, TopicNames
from zkconsumer.tools import common, group_state, offset_checker
from zkconsumer.zookeeper.connection import Connection
from zkconsumer.zookeeper.security import ZooKeeperSecurity


def read_zookeeper(text: str) -> list[str]:
    """Return the servers of kazoo's client."""
    config = ConsumerConfig.from_dict({"group.id": "g", "zookeeper.connect": text})
    connection = Connection(
        config.zookeeper_connect, session_timeout_s=1, call_timeout_s=1, security=ZooKeeperSecurity()
    )
    return [f"{host}:{port}{connection.client.chroot}" for host, port in connection.client.hosts]


def read_bootstrap(text: str) -> list[str]:
    config = ConsumerConfig.from_dict({"group.id": "g", "zookeeper.connect": "z:1", "bootstrap.servers": text})
    return [str(endpoint) for endpoint in parse_bootstrap(config.bootstrap_servers)]


def read_broker_list(text: str) -> list[str]:
    """Return the servers of ``--broker-list`` and of ``KafkaUtils`` parameters."""
    return [str(endpoint) for endpoint in parse_bootstrap(text)]


def read_checked_topics(text: str) -> list[str]:
    """Return the topics of the offset checker."""
    asked: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_state, "list_partitions", lambda _cluster, topics: asked.extend(topics))
        patch.setattr(common, "check_topics", lambda _cluster, topics: None)
        access: Any = SimpleNamespace(cluster=None)
        offset_checker._list_partitions(argparse.Namespace(topic=text), access)
    return asked


READERS: dict[str, tuple[Callable[[str], Any], str, str]] = {
    "zookeeper.connect": (read_zookeeper, "h1:1", "h2:2"),
    "bootstrap.servers": (read_bootstrap, "h1:1", "h2:2"),
    "--broker-list": (read_broker_list, "h1:1", "[::1]:2"),
    "subscribe": (lambda text: list(TopicNames().parse(text)), "a", "b.c"),
    "columns": (lambda text: list(Columns().parse(text)), "key", "value"),
    "--topic": (read_checked_topics, "a", "b"),
}


def read(name: str, text: str) -> list[str]:
    return list(READERS[name][0](text))


every_list = pytest.mark.parametrize("name", READERS)


@pytest.mark.parametrize(
    "form", ["{0},{1}", "{0}, {1}", "{0} ,{1}", " {0}\t,  {1} ", "{0},{1},", "{0},{1} , ", "{0},{1},,,", "{0},{1}, ,"]
)
@every_list
def test_blanks_and_final_commas_do_not_count(name: str, form: str) -> None:
    _, first, second = READERS[name]
    assert read(name, form.format(first, second)) == [first, second]


@pytest.mark.parametrize("form", [",{0},{1}", " ,{0},{1}", "{0},,{1}", "{0}, ,{1}"])
@every_list
def test_empty_entry_before_another_is_treated_as_in_original(name: str, form: str) -> None:
    """Kafka's clients and Spark ignore it; for a ZooKeeper server or a column, it is an error."""
    _, first, second = READERS[name]
    text = form.format(first, second)
    if name in ("zookeeper.connect", "columns"):
        with pytest.raises((ConfigurationError, ValueError)):
            read(name, text)
    elif name == "--topic":  # the tool reports that the topic '' does not exist
        assert sorted(read(name, text)) == ["", "a", "b"]
    else:
        assert read(name, text) == [first, second]


@pytest.mark.parametrize("text", [",", " , ", ",,"])
@every_list
def test_list_of_commas_is_rejected(name: str, text: str) -> None:
    if name == "--topic":
        assert read(name, text) == []
        return
    with pytest.raises((ConfigurationError, ValueError)):
        read(name, text)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("h1,h2:3,/kafka", ["h1:2181/kafka", "h2:3/kafka"]),
        ("h1:1 , h2 /a/b", ["h1:1/a/b", "h2:2181/a/b"]),
        ("[::1]:1, [fe80::1] ,", ["::1:1", "fe80::1:2181"]),
    ],
)
def test_chroot_follows_list(text: str, servers: list[str]) -> None:
    assert read_zookeeper(text) == servers


@given(st.lists(st.sampled_from(["a", "b", "", " ", "c d"])).map(",".join))
def test_list_is_split_as_by_java(text: str) -> None:
    """Java's ``String.split`` drops empty entries at the end."""
    expected = [entry.strip(" ") for entry in text.split(",")]
    while expected and expected[-1] == "":
        del expected[-1]
    assert split_list(text) == expected


@pytest.mark.parametrize("type_", [Servers(), Servers(2181, has_chroot=True)])
def test_parsed_servers_are_parsed_to_themselves(type_: Servers) -> None:
    """Configurations are pickled with their parsed values."""
    parsed = type_.parse(" h1:1 ,h2:2, ")
    assert parsed == "h1:1,h2:2"
    assert type_.parse(parsed) == parsed
    assert [Endpoint.parse(server) for server in parsed.split(",")] == [Endpoint("h1", 1), Endpoint("h2", 2)]
