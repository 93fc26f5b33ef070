"""Offsets that zkconsumer and the JVM commit for each other: in ZooKeeper, in Kafka, in both, and in files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Consumers, Run, Topics
from helpers.producing import numbers, produce
from helpers.reading import take, values
from helpers.topics import recreate_topic
from helpers.waiting import wait_for
from helpers.znodes import stored
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.devcluster.servers import java_command, kafka_jars, write_properties
from zkconsumer.tools.cli import main

STORAGES = {
    "zookeeper": {"offsets.storage": "zookeeper"},
    "kafka": {"offsets.storage": "kafka", "dual.commit.enabled": "false"},
    "dual": {"offsets.storage": "kafka", "dual.commit.enabled": "true"},
}
#: The last release with the tools for offsets.
TOOLS = "0.11.0.3"


def jvm(tool: str, *arguments: object, release: str = TOOLS, log: Path | None = None) -> str:
    """Run a tool of the JVM and return its output; without a log file, the output contains logged errors."""
    command = java_command("128m", kafka_jars(release), tool, *map(str, arguments), log=log)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def jvm_console(config: ConsumerConfig, storage: str, topic: str, count: int, folder: Path) -> list[bytes]:
    """Run the JVM console consumer until it has read ``count`` messages, and return their values."""
    settings = {
        "group.id": config.group_id,
        "zookeeper.connect": config.zookeeper_connect,
        "auto.offset.reset": "smallest" if not (folder / "used").exists() else "largest",
        **STORAGES[storage],
    }
    path = write_properties(folder / "jvm.properties", settings)
    out = jvm(
        "kafka.tools.ConsoleConsumer",
        *("--zookeeper", config.zookeeper_connect, "--topic", topic, "--consumer.config", path),
        *("--max-messages", count),
        release="1.1.1",
        log=folder / "console.log",
    )
    return out.encode().split()


@pytest.mark.parametrize("storage", STORAGES)
def test_members_continue_at_each_others_offsets(
    storage: str,
    admin: Any,
    topic: Topics,
    config: Callable[..., ConsumerConfig],
    consumer: Consumers,
    tmp_path: Path,
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 100))
    ours = {key.replace(".", "_"): value for key, value in STORAGES[storage].items()}

    assert jvm_console(config(), storage, name, 10, tmp_path) == numbers(0, 10)
    (tmp_path / "used").touch()
    with consumer(**ours) as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        assert values(take(stream, 10)) == numbers(10, 20)
    assert jvm_console(config(), storage, name, 10, tmp_path) == numbers(20, 30)
    with consumer(**ours) as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        assert values(take(stream, 1)) == numbers(30, 31)


def test_members_read_recreated_topic_once_after_each_other(
    zkconsumer_cluster: Cluster,
    topic: Topics,
    config: Callable[..., ConsumerConfig],
    consumer: Consumers,
    zk: KazooClient,
    tmp_path: Path,
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    assert jvm_console(config(), "zookeeper", name, 10, tmp_path) == numbers(0, 10)
    (tmp_path / "used").touch()
    recreate_topic(zkconsumer_cluster, zk, name)
    produce(admin, name, 0, numbers(200, 300))
    with consumer(auto_offset_reset="largest") as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        assert values(take(stream, 10)) == numbers(200, 210)
    assert jvm_console(config(), "zookeeper", name, 10, tmp_path) == numbers(210, 220)
    with consumer(auto_offset_reset="largest") as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        assert values(take(stream, 10)) == numbers(220, 230)


def test_exported_offsets_are_exchangeable(topic: Topics, group: str, zk: KazooClient, at: str, tmp_path: Path) -> None:
    name, theirs, ours = topic(2), tmp_path / "theirs", tmp_path / "ours"
    for partition, offset in ((0, b"12"), (1, b"7")):
        zk.create(f"/consumers/{group}/offsets/{name}/{partition}", offset, makepath=True)
    jvm("kafka.tools.ExportZkOffsets", "--zkconnect", at, "--group", group, "--output-file", theirs)
    assert main(["export-offsets", "--zkconnect", at, "--group", group, "--output-file", str(ours)]) == 0
    assert sorted(ours.read_text().splitlines()) == sorted(theirs.read_text().splitlines())

    for partition in range(2):
        zk.set(f"/consumers/{group}/offsets/{name}/{partition}", b"1")
    jvm("kafka.tools.ImportZkOffsets", "--zkconnect", at, "--input-file", ours)
    assert stored(zk, group, name) == {0: "12", 1: "7"}
    for partition in range(2):
        zk.set(f"/consumers/{group}/offsets/{name}/{partition}", b"1")
    assert main(["import-offsets", "--zkconnect", at, "--input-file", str(theirs)]) == 0
    assert stored(zk, group, name) == {0: "12", 1: "7"}


def test_offset_checkers_agree(
    admin: Any, topic: Topics, consumer: Consumers, group: str, zk: KazooClient, at: str, run: Run
) -> None:
    names = [topic(2), topic(1)]
    for name in names:
        produce(admin, name, 0, numbers(0, 10))
    connector = consumer(auto_commit_enable=False)
    connector.create_message_streams(dict.fromkeys(names, 1))
    connector.commit_offsets({TopicPartition(names[0], 0): 4, TopicPartition(names[0], 1): 0})
    zk.create(f"/consumers/{group}/offsets/{names[1]}/0", b"-1", makepath=True)

    theirs = jvm("kafka.tools.ConsumerOffsetChecker", "--group", group, "--zookeeper", at, "--broker-info")
    code, ours, _ = run("offset-checker", "--group", group, "--zookeeper", at, "--broker-info")
    assert code == 0

    def rows(text: str) -> list[str]:
        return sorted(line for line in text.splitlines() if line and not line.startswith("SLF4J"))

    assert rows(ours) == rows(theirs)


@pytest.mark.slow
def test_consumer_groups_output_equals_that_of_jvm(
    admin: Any, topic: Topics, consumer: Consumers, group: str, zk: KazooClient, at: str, run: Run
) -> None:
    names = [topic(2), topic(1)]
    produce(admin, names[0], 0, numbers(0, 10))
    members = [consumer(consumer_id=letter, auto_commit_enable=False) for letter in "abc"]
    for member in members:
        member.create_message_streams({names[0]: 1})
    wait_for(lambda: [len(member.assignment) for member in members] == [1, 1, 0])
    members[0].commit_offsets({TopicPartition(names[0], 0): 4})
    zk.create(f"/consumers/{group}/offsets/{names[1]}/0", b"3", makepath=True)
    zk.ensure_path(f"/consumers/{group}/owners/{names[1]}")

    def compare(*arguments: str) -> str:
        theirs = jvm("kafka.admin.ConsumerGroupCommand", "--zookeeper", at, *arguments, release="1.1.1")
        _, ours, errors = run("consumer-groups", "--zookeeper", at, *arguments)
        # The JVM prints topics in the order of ZooKeeper's hash table.
        assert sorted(ours.splitlines()) == sorted(theirs.splitlines())
        assert errors.startswith("Note: This will only show information")
        return theirs

    assert f"{group}_c" in compare("--describe", "--group", group)
    compare("--describe", "--group", "none-such")
    for member in members:
        member.shutdown()
    compare("--describe", "--group", group)
    for name, tool in zip(names, (True, False), strict=True):
        delete = ("--delete", "--group", group, "--topic", name)
        if tool:
            assert main(["consumer-groups", "--zookeeper", at, *delete]) == 0
        else:
            jvm("kafka.admin.ConsumerGroupCommand", "--zookeeper", at, *delete, release="1.1.1")
    assert not zk.exists(f"/consumers/{group}")
