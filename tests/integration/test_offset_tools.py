"""Tests of the command line tools that print, export, import and copy committed offsets, with real groups."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Consumers, Run, Topics
from helpers.old_versions import VERSIONS, find_data
from helpers.producing import numbers, produce
from helpers.reading import take
from helpers.topics import recreate_topic
from helpers.znodes import set_offsets, stored
from kazoo.client import KazooClient

# ---- offset-checker ---------------------------------------------------------------------------------


def test_offset_checker_prints_columns_of_original(
    admin: Any, topic: Topics, consumer: Consumers, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name = topic(3)
    for partition in range(2):
        produce(admin, name, partition, numbers(0, 10))
    connector = consumer(consumer_id="c", auto_commit_enable=False)
    connector.create_message_streams({name: 1})
    set_offsets(zk, group, name, {0: 4, 1: -1})

    code, out, _ = run("offset-checker", "--group", group, "--zookeeper", at, "--retry.backoff.ms", 200)

    row = "%-15s %-30s %-3s %-15s %-15s %-15s %s"
    owner = f"{group}_c-0"
    assert (code, out.splitlines()) == (
        0,
        [
            row % ("Group", "Topic", "Pid", "Offset", "logSize", "Lag", "Owner"),
            row % (group, name, 0, 4, 10, 6, owner),
            row % (group, name, 1, -1, 10, "unknown", owner),
            row % (group, name, 2, -1, 0, "unknown", owner),
        ],
    )
    code, out, _ = run("offset-checker", "--group", group, "--zookeeper", at, "--topic", name, "--broker-info")
    assert code == 0
    assert re.search(r"\nBROKER INFO\n(\d+ -> \S+:\d+\n)+$", out)
    code, out, _ = run("offset-checker", "--group", group, "--zookeeper", at, "--json")
    assert json.loads(out)["partitions"][0] == {
        "topic": name,
        "partition": 0,
        "offset": 4,
        "endOffset": 10,
        "lag": 6,
        "owner": owner,
    }
    connector.shutdown()
    _, out, _ = run("offset-checker", "--group", group, "--zookeeper", at, "--retry.backoff.ms", 200)
    assert out.splitlines()[1] == row % (group, name, 0, 4, 10, 6, "none"), "topics of a stopped group are listed, too"


def test_offset_checker_prefers_offset_in_kafka(
    admin: Any, topic: Topics, consumer: Consumers, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    with consumer(offsets_storage="kafka", dual_commit_enabled=False) as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        take(stream, 7)
    set_offsets(zk, group, name, {0: 3})

    _, out, _ = run("offset-checker", "--group", group, "--zookeeper", at, "--topic", name)

    assert out.splitlines()[1].split()[2:] == ["0", "7", "10", "3", "none"]


@pytest.mark.parametrize("tool", ["offset-checker", "verify-rebalance", "doctor"])
def test_missing_group_is_named(tool: str, run: Run, at: str) -> None:
    flag = "--zookeeper.connect" if tool == "verify-rebalance" else "--zookeeper"
    code, out, errors = run(tool, "--group", "none-such", flag, at)

    assert code == 1
    assert "none-such" in out + errors


# ---- export, import, update -------------------------------------------------------------------------


def test_exported_offsets_can_be_imported(
    topic: Topics, group: str, zk: KazooClient, run: Run, at: str, tmp_path: Path
) -> None:
    name, file = topic(2), tmp_path / "offsets"
    set_offsets(zk, group, name, {0: 12, 1: 7})

    assert run("export-offsets", "--zkconnect", at, "--group", group, "--output-file", file)[0] == 0
    assert file.read_text() == f"/consumers/{group}/offsets/{name}/0:12\n/consumers/{group}/offsets/{name}/1:7\n"

    zk.delete(f"/consumers/{group}/offsets/{name}/0")
    set_offsets(zk, group, name, {1: 99})
    assert run("import-offsets", "--zkconnect", at, "--input-file", file)[0] == 0
    assert stored(zk, group, name) == {0: "12", 1: "7"}


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_exported_by_earlier_version_are_imported(
    version: str, topic: Topics, zk: KazooClient, run: Run, at: str
) -> None:
    name = f"old-exported-{version}"  # of the group and the topic
    topic(2, name=name)
    try:
        assert run("import-offsets", "--zkconnect", at, "--input-file", find_data(version) / "exported-offsets")[0] == 0
        assert stored(zk, name, name) == {0: "50", 1: "50"}
    finally:
        zk.delete(f"/consumers/{name}", recursive=True)


def test_import_with_invalid_line_writes_nothing(
    topic: Topics, group: str, zk: KazooClient, run: Run, at: str, tmp_path: Path
) -> None:
    name, file = topic(), tmp_path / "offsets"
    file.write_text(f"/consumers/{group}/offsets/{name}/0:12\n/brokers/ids/0:7\n")

    code, _, errors = run("import-offsets", "--zkconnect", at, "--input-file", file)

    assert code == 1
    assert f"{file}:2: must be /consumers/" in errors
    assert stored(zk, group, name) == {}


@pytest.mark.parametrize("tool", ["import-offsets", "update-offsets", "migrate-offsets"])
def test_offsets_of_active_group_are_not_changed(
    tool: str, topic: Topics, consumer: Consumers, group: str, zk: KazooClient, run: Run, at: str, tmp_path: Path
) -> None:
    name = topic()
    file, properties = tmp_path / "offsets", tmp_path / "consumer.properties"
    file.write_text(f"/consumers/{group}/offsets/{name}/0:12\n")
    properties.write_text(f"group.id={group}\nzookeeper.connect={at}\n")
    connector = consumer(consumer_id="alive", auto_commit_enable=False)
    connector.create_message_streams({name: 1})
    arguments_of: dict[str, list[str | Path]] = {
        "import-offsets": ["--zkconnect", at, "--input-file", file],
        "update-offsets": ["latest", properties, name],
        "migrate-offsets": ["--zookeeper", at, "--group", group, "--to", "kafka", "--execute"],
    }
    arguments = arguments_of[tool]

    code, _, errors = run(tool, *arguments)

    assert code == 1
    assert "has live members" in errors
    assert f"{group}_alive" in errors
    assert stored(zk, group, name) == {}
    if tool != "migrate-offsets":
        assert run(tool, *arguments, "--force")[0] == 0
        assert stored(zk, group, name) == {0: "12" if tool == "import-offsets" else "0"}


@pytest.mark.parametrize(("where", "offset"), [("earliest", "0"), ("latest", "10")])
def test_update_offsets_sets_log_start_or_end(
    where: str, offset: str, admin: Any, topic: Topics, group: str, zk: KazooClient, run: Run, at: str, tmp_path: Path
) -> None:
    name, properties = topic(2), tmp_path / "consumer.properties"
    properties.write_text(f"group.id={group}\nzookeeper.connect={at}\n")
    for partition in range(2):
        produce(admin, name, partition, numbers(0, 10))
    set_offsets(zk, group, name, {0: 5})

    code, out, _ = run("update-offsets", where, properties, name)

    assert code == 0
    assert out.splitlines() == [
        f"updating partition 0 with new offset: {offset}",
        f"updating partition 1 with new offset: {offset}",
        "updated the offset for 2 partitions",
    ]
    assert stored(zk, group, name) == {0: offset, 1: offset}


def test_update_offsets_writes_to_groups_storage(
    admin: Any, topic: Topics, group: str, zk: KazooClient, run: Run, at: str, tmp_path: Path
) -> None:
    name, properties = topic(), tmp_path / "consumer.properties"
    produce(admin, name, 0, numbers(0, 10))
    properties.write_text(f"group.id={group}\nzookeeper.connect={at}\noffsets.storage=kafka\n")

    assert run("update-offsets", "latest", properties, name)[0] == 0

    assert stored(zk, group, name) == {0: "10"}
    _, out, _ = run("consumer-groups", "--zookeeper", at, "--describe", "--group", group)
    assert out.splitlines()[2].split()[:4] == [name, "0", "10", "10"]
    zk.delete(f"/consumers/{group}/offsets/{name}/0")
    assert (
        "10" in run("offset-checker", "--zookeeper", at, "--group", group, "--topic", name)[1].splitlines()[1].split()
    )


# ---- migrate-offsets --------------------------------------------------------------------------------


def test_migrate_offsets_copies_to_kafka_and_back(
    topic: Topics, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name = topic(2)
    set_offsets(zk, group, name, {0: 4, 1: 6})
    to = ["migrate-offsets", "--zookeeper", at, "--group", group, "--to"]

    assert "2 of 2 offsets would be copied to kafka; use --execute to copy them" in run(*to, "kafka")[1]
    assert "has no offsets to copy" in run(*to, "zookeeper")[1]  # without --execute, nothing is written
    assert "2 of 2 offsets copied to kafka" in run(*to, "kafka", "--execute")[1]
    assert "0 of 2 offsets copied" in run(*to, "kafka", "--execute")[1]  # all offsets are equal

    set_offsets(zk, group, name, {0: 9, 1: 1})
    code, out, _ = run(*to, "zookeeper", "--execute", "--json")
    assert code == 1  # one higher offset was kept
    actions = {row["partition"]: row["action"] for row in json.loads(out)["partitions"]}
    assert actions == {0: "skip, target is higher", 1: "copy"}
    assert stored(zk, group, name) == {0: "9", 1: "6"}
    assert run(*to, "zookeeper", "--execute", "--allow-back")[0] == 0
    assert stored(zk, group, name) == {0: "4", 1: "6"}


def test_migrate_offsets_skips_offset_of_deleted_topic(
    zkconsumer_cluster: Cluster, topic: Topics, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name, other = topic(), topic()
    set_offsets(zk, group, name, {0: 4})
    set_offsets(zk, group, other, {0: 2})
    recreate_topic(zkconsumer_cluster, zk, name)

    _, out, errors = run("migrate-offsets", "--zookeeper", at, "--group", group, "--to", "kafka", "--execute")

    assert "1 of 1 offsets copied to kafka" in out
    assert errors == f"skipped: partition {name}-0 has the offset of a deleted topic of the same name\n"
