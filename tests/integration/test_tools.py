"""Tests of the command line tools with real groups: output and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Consumers, Run, Topics
from helpers.old_versions import VERSIONS, find_data
from helpers.producing import numbers, produce
from helpers.reading import take
from helpers.topics import recreate_topic
from helpers.waiting import wait_for
from helpers.znodes import registered, set_offsets, stored
from kazoo.client import KazooClient

from zkconsumer.rebalance.assignors import assign_roundrobin

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


# ---- consumer-groups, verify-rebalance --------------------------------------------------------------


def test_consumer_groups_lists_describes_and_deletes(
    admin: Any, topic: Topics, consumer: Consumers, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name = topic(2)
    produce(admin, name, 0, numbers(0, 10))
    busy = consumer(consumer_id="busy", auto_commit_enable=False)
    busy.create_message_streams({name: 1})
    idle = consumer(consumer_id="idle", auto_commit_enable=False)
    idle.create_message_streams({})
    set_offsets(zk, group, name, {0: 4})
    tool = ["consumer-groups", "--zookeeper", at]

    assert group in run(*tool, "--list")[1].splitlines()
    code, out, errors = run(*tool, "--describe", "--group", group)
    assert code == 0
    assert errors.startswith("Note: This will only show information about consumers that use ZooKeeper")
    assert [line.split() for line in out.splitlines() if not line.startswith("Error")] == [
        [],
        ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID"],
        [name, "0", "4", "10", "6", f"{group}_busy"],
        [name, "1", "-", "0", "-", f"{group}_busy"],
        ["-", "-", "-", "-", "-", f"{group}_idle"],
    ]
    code, out, _ = run(*tool, "--delete", "--group", group)
    assert (code, out) == (1, f"Error: Delete for group '{group}' failed because its consumers are still active.\n")
    busy.shutdown()
    idle.shutdown()
    code, out, _ = run(*tool, "--delete", "--group", group)
    assert (code, out) == (0, f"Deleted all consumer group information for group '{group}' in zookeeper.\n")
    assert not zk.exists(f"/consumers/{group}")
    code, out, _ = run(*tool, "--describe", "--group", group)
    assert (code, out) == (1, f"Error: The consumer group '{group}' does not exist.\n")


def test_verify_rebalance_finds_unowned_partitions(
    topic: Topics, consumer: Consumers, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name = topic(2)
    connector = consumer()
    connector.create_message_streams({name: 1})
    tool = ["verify-rebalance", "--zookeeper.connect", at, "--group", group]

    assert run(*tool)[:2] == (0, "Rebalance operation successful !\n")
    zk.create(
        f"/consumers/{group}/ids/{group}_dead", b'{"version":1,"subscription":{"%s":1},"pattern":"static"}' % b"x"
    )
    connector.shutdown()
    zk.create(
        f"/consumers/{group}/ids/{group}_a", b'{"version":1,"subscription":{"%s":1},"pattern":"static"}' % name.encode()
    )
    code, out, _ = run(*tool)
    assert code == 1
    assert out.splitlines()[-1] == "Rebalance operation failed !"
    assert f"No owner for partition {name}-0" in out


# ---- doctor -----------------------------------------------------------------------------------------


def test_doctor_finds_nothing_in_healthy_group(
    topic: Topics, consumer: Consumers, group: str, run: Run, at: str
) -> None:
    name = topic(4)
    members = [consumer(consumer_id=letter) for letter in "ab"]
    for member in members:
        member.create_message_streams({name: 1})
    wait_for(lambda: all(len(member.assignment) == 2 for member in members))

    code, out, _ = run("doctor", "--zookeeper", at, "--group", group)

    assert (code, out) == (0, f"health: healthy\ngroup {group}: 2 members, 4 partitions owned: no problems found\n")


def test_doctor_reports_each_problem(admin: Any, topic: Topics, group: str, zk: KazooClient, run: Run, at: str) -> None:
    name, gone = topic(12), "gone-" + group
    produce(admin, name, 0, numbers(0, 10))
    zk.create(f"/consumers/{group}/ids/{group}_broken", b"not json", ephemeral=True, makepath=True)
    registered(zk, group, "a", {name: 1})
    registered(zk, group, "b", {name: 1, gone: 1})
    registered(zk, group, "twice", {"foo\\\\.bar": 1}, "white_list")
    registered(zk, group, "odd", {"[a-z&&[^x]]": 1}, "white_list")
    zk.create(f"/consumers/{group}/owners/{name}/3", f"{group}_zombie-0".encode(), ephemeral=True, makepath=True)
    set_offsets(zk, group, name, {0: 1000, 40: 1})
    zk.create(f"/consumers/{group}/offsets/{name}/5", b"many", makepath=True)
    zk.create(f"/consumers/{group}/offsets/{name}/0-5", b"7", makepath=True)
    try:
        code, out, _ = run("doctor", "--zookeeper", at, "--group", group, "--json")
    finally:
        for member in zk.get_children(f"/consumers/{group}/ids"):
            zk.delete(f"/consumers/{group}/ids/{member}")
        zk.delete(f"/consumers/{group}/owners/{name}/3")

    assert code == 1
    found = {finding["where"]: finding["problem"] for finding in json.loads(out)["findings"]}
    for where, problem in {
        f"/consumers/{group}/ids/{group}_broken": "does not contain a valid consumer registration",
        f"member {group}_twice": "escaped twice",
        f"member {group}_odd": "cannot evaluate",
        f"topic {gone}": "does not exist",
        f"partition {name}-3": "is not a member of the group",
        f"partition {name}-4": "has no owner",
        f"partition {name}-40": "for a partition that does not exist",
        f"/consumers/{group}/offsets/{name}/5": "must contain an integer offset",
        f"/consumers/{group}/offsets/{name}/0-5": "the name must be a partition number",
    }.items():
        assert problem in found[where], where
        assert not where.startswith("/") or where not in found[where], "the path is printed once"
    problems = [f["problem"] for f in json.loads(out)["findings"] if f["where"] == f"partition {name}-0"]
    assert any(
        "offset 1000 is out of range: the log start offset is 0, and the end offset is 10" in problem
        for problem in problems
    )


def test_doctor_reports_jvm_problems_and_stale_offsets(
    admin: Any, topic: Topics, consumer: Consumers, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer(consumer_id="c", auto_commit_enable=False)
    connector.create_message_streams({name: 1})
    set_offsets(zk, group, name, {0: 4})
    content = json.dumps({"version": 1, "subscription": {}, "pattern": "static", "timestamp": 1700000000000})
    zk.create(f"/consumers/{group}/ids/{group}_odd", content.encode(), ephemeral=True)
    committed = zk.exists(f"/consumers/{group}/offsets/{name}/0").mtime / 1000
    try:
        wait_for(lambda: time.time() > committed + 1)
        code, out, _ = run("doctor", "--zookeeper", at, "--group", group, "--stale-after", 1)
    finally:
        zk.delete(f"/consumers/{group}/ids/{group}_odd")
    longest = round(time.time() - committed)

    assert code == 1
    assert f"cannot read the registration of {group}_odd: timestamp '1700000000000' is not a 32-bit integer" in out
    stale = re.search(r"was last committed (\d+) s ago; lag 6 records", out)
    assert stale, out
    assert 1 <= int(stale[1]) <= longest
    assert run("doctor", "--zookeeper", at, "--group", group)[0] == 0


def test_doctor_detects_different_assignment_orders(
    topic: Topics, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name = topic(4)
    for member in "ab":
        registered(zk, group, member, {name: 1})
    by_range = {0: "a", 1: "a"}
    dealt = assign_roundrobin({name: [0, 1, 2, 3]}, {name: [f"{group}_a-0", f"{group}_b-0"]})
    b_gets = {p.partition: "b" for p, thread in dealt.items() if thread == f"{group}_b-0" and p.partition > 1}
    assert b_gets.keys() != {2, 3}
    for partition, member in {**by_range, **b_gets}.items():
        zk.create(f"/consumers/{group}/owners/{name}/{partition}", f"{group}_{member}-0".encode(), makepath=True)
    try:
        _, out, _ = run("doctor", "--zookeeper", at, "--group", group)
    finally:
        zk.delete(f"/consumers/{group}/ids", recursive=True)
        zk.delete(f"/consumers/{group}/owners", recursive=True)
    assert "has no owner" in out


# ---- watch, perf, shell, console --------------------------------------------------------------------


def test_watch_prints_lines_without_terminal(
    admin: Any, topic: Topics, consumer: Consumers, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer(consumer_id="c", auto_commit_enable=False)
    connector.create_message_streams({name: 1})
    set_offsets(zk, group, name, {0: 4})

    code, out, _ = run("watch", "--zookeeper", at, "--group", group, "--interval", 1, "--count", 2)

    assert code == 0
    lines = out.splitlines()
    assert lines[0] == f"group {group}: 1 member, 1 partition, lag 6"
    assert lines[1].split() == ["TOPIC", "PARTITION", "OFFSET", "LOG-END", "LAG", "CONSUMED/S", "PRODUCED/S", "OWNER"]
    assert lines[-1].split() == [name, "0", "4", "10", "6", "0", "0", f"{group}_c-0"]


@pytest.mark.parametrize("arrow", [[], ["--arrow"]])
def test_consumer_perf_prints_columns_of_original(
    arrow: list[str], admin: Any, topic: Topics, group: str, run: Run, at: str
) -> None:
    name = topic(2)
    for partition in range(2):
        produce(admin, name, partition, [b"x" * 100] * 500)

    code, out, _ = run(
        *("consumer-perf", "--zookeeper", at, "--topic", name, "--group", group),
        *("--messages", 100_000, "--threads", 2, *arrow),
    )

    assert code == 0
    header, row = out.splitlines()
    assert header == "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
    cells = row.split(", ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", cells[0])
    assert cells[4] == "1000"
    assert float(cells[5]) > 100


def test_simple_consumer_shell_prints_partition_to_end(
    zkconsumer_cluster: Cluster, admin: Any, topic: Topics, run: Run
) -> None:
    name = topic(2)
    produce(admin, name, 1, numbers(0, 4))
    shell = ["simple-consumer-shell", "--broker-list", zkconsumer_cluster.bootstrap_servers, "--topic", name]

    code, out, _ = run(*shell, "--partition", 1, "--offset", 2, "--no-wait-at-logend", "--print-offsets")

    end = f"Terminating. Reached the end of partition ({name}, 1) at offset 4"
    assert (code, out.splitlines()) == (0, ["next offset = 3", "2", "next offset = 4", "3", end])
    assert run(*shell, "--partition", 1, "--max-messages", 1)[1] == "0\n"
    assert "does not exist" in run(*shell, "--partition", 7)[2]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--property", "print.key=true"], b"null\tv0\n"),
        (["--property", "print.key=true", "--property", "key.separator=:"], b"null:v0\n"),
        (["--property", "print.timestamp=true"], rb"CreateTime:\d+\tv0" + b"\n"),
        (["--property", "line.separator=;"], b"v0;"),
        (["--formatter", "kafka.tools.NoOpMessageFormatter"], b""),
        (["--formatter", "kafka.tools.ChecksumMessageFormatter"], rb"checksum:\d+" + b"\n"),
        (["--formatter", "kafka.tools.LoggingMessageFormatter"], b"v0\n"),
    ],
)
def test_console_formatters_match_original(
    arguments: list[str], line: bytes, admin: Any, topic: Topics, group: str, at: str, run: Run
) -> None:
    name = topic()
    produce(admin, name, 0, [b"v0"])

    code, out, errors = run(
        *("console-consumer", "--zookeeper", at, "--group", group, "--whitelist", name, "--from-beginning"),
        *("--max-messages", 1, *arguments),
    )

    assert code == 0
    assert re.fullmatch(line, out.encode())
    assert errors == "Processed a total of 1 messages\n"


def test_unknown_formatter_is_rejected(run: Run, at: str) -> None:
    code, _, errors = run(
        *("console-consumer", "--zookeeper", at, "--topic", "t", "--formatter", "kafka.tools.DefaultMesageFormatter")
    )

    assert code == 2
    assert "did you mean kafka.tools.DefaultMessageFormatter?" in errors


def test_console_deletes_offsets_on_request(
    admin: Any, topic: Topics, group: str, zk: KazooClient, at: str, run: Run
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 3))
    set_offsets(zk, group, name, {0: 2})
    console = ["console-consumer", "--zookeeper", at, "--group", group, "--topic", name, "--from-beginning"]

    code, _, errors = run(*console, "--max-messages", 1)
    assert code == 1
    assert "Please use --delete-consumer-offsets to delete previous offsets metadata" in errors
    assert run(*console, "--max-messages", 1, "--delete-consumer-offsets")[1] == "0\n"


def test_consumer_groups_describes_offsets_in_kafka(
    admin: Any, topic: Topics, consumer: Consumers, group: str, run: Run, at: str
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer(consumer_id="c", offsets_storage="kafka", dual_commit_enabled=False)
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 7)
    connector.commit_offsets()

    _, out, _ = run("consumer-groups", "--zookeeper", at, "--describe", "--group", group)

    assert out.splitlines()[2].split() == [name, "0", "7", "10", "3", f"{group}_c"]


# ---- JSON output ------------------------------------------------------------------------------------


def test_consoles_print_json_lines(
    zkconsumer_cluster: Cluster, admin: Any, topic: Topics, group: str, at: str, run: Run
) -> None:
    name = topic()
    produce(admin, name, 0, ["é".encode(), b"\xff\x00"])
    console = ("console-consumer", "--zookeeper", at, "--group", group, "--topic", name, "--from-beginning")
    shell = ("simple-consumer-shell", "--broker-list", zkconsumer_cluster.bootstrap_servers, "--topic", name)

    _, by_group, _ = run(*console, "--max-messages", 2, "--json")
    _, by_partition, _ = run(*shell, "--no-wait-at-logend", "--json")

    assert by_group == by_partition
    first, second = map(json.loads, by_group.splitlines())
    assert abs(first.pop("timestamp") / 1000 - time.time()) < 600
    assert first == {"topic": name, "partition": 0, "offset": 0, "headers": [], "key": None, "value": "é"}
    assert second["value"] == {"base64": "/wA="}


def test_consumer_perf_prints_json(admin: Any, topic: Topics, group: str, run: Run, at: str) -> None:
    name = topic()
    produce(admin, name, 0, [b"x" * 100] * 500)
    perf = ("consumer-perf", "--zookeeper", at, "--topic", name, "--messages", 1000, "--threads", 1, "--json")

    _, out, _ = run(*perf, "--group", group)

    assert json.loads(out)["messages"] == 500


def test_consumer_perf_prints_dates_as_java_would(admin: Any, topic: Topics, group: str, run: Run, at: str) -> None:
    name = topic()
    produce(admin, name, 0, [b"x"])
    perf = ("consumer-perf", "--zookeeper", at, "--topic", name, "--group", group, "--messages", 1, "--threads", 1)

    _, out, _ = run(*perf, "--date-format", "yyyyMMddHHmmssSSS", "--hide-header")

    assert re.fullmatch(r"\d{17}", out.split(", ")[0])


def test_offset_files_are_reported_in_json(
    topic: Topics, group: str, zk: KazooClient, run: Run, at: str, tmp_path: Path
) -> None:
    name, file, properties = topic(2), tmp_path / "offsets", tmp_path / "consumer.properties"
    set_offsets(zk, group, name, {0: 3, 1: 4})
    zk.create(f"/consumers/{group}/offsets/{name}/x", b"1")
    properties.write_text(f"zookeeper.connect={at}\ngroup.id={group}\n")

    _, out, _ = run("export-offsets", "--zkconnect", at, "--group", group, "--output-file", file, "--json")
    told = json.loads(out)
    assert told["offsets"] == {group: 2}
    assert len(told["skipped"]) == 1
    _, out, _ = run("import-offsets", "--zkconnect", at, "--input-file", file, "--json")
    assert json.loads(out) == {"offsets": {group: 2}}
    _, out, _ = run("update-offsets", "latest", properties, name, "--json")
    rows = [{"topic": name, "partition": partition, "offset": 0} for partition in range(2)]
    assert json.loads(out) == {"group": group, "partitions": rows}


def test_json_of_tools_has_one_vocabulary(
    admin: Any, topic: Topics, consumer: Consumers, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    consumer(consumer_id="c", auto_commit_enable=False).create_message_streams({name: 1})
    set_offsets(zk, group, name, {0: 4})
    expected = {"topic": name, "partition": 0, "offset": 4, "endOffset": 10, "lag": 6, "owner": f"{group}_c-0"}

    for tool in (["watch", "--count", 1], ["offset-checker"], ["consumer-groups", "--describe"]):
        code, out, _ = run(*tool, "--zookeeper", at, "--group", group, "--json")
        assert code == 0
        [line] = out.splitlines()
        told = json.loads(line)
        assert (told["group"], told["members"]) == (group, [f"{group}_c"])
        [partition] = told["partitions"]
        assert {key: partition[key] for key in expected} == expected


@pytest.mark.parametrize(
    "tool",
    [
        ["consumer-groups", "--zookeeper", "AT", "--list"],
        ["doctor", "--zookeeper", "AT", "--group", "GROUP"],
        ["verify-rebalance", "--zookeeper.connect", "AT", "--group", "GROUP"],
        ["migrate-offsets", "--zookeeper", "AT", "--group", "GROUP", "--to", "kafka"],
        ["cluster", "status"],
    ],
    ids=lambda tool: tool[0],
)
def test_json_is_one_object_with_camel_case_names(
    tool: list[str], topic: Topics, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    set_offsets(zk, group, topic(), {0: 0})

    _, out, _ = run(*({"AT": at, "GROUP": group}.get(word, word) for word in tool), "--json")

    [line] = out.splitlines()
    properties = ("zookeeper.connect", "bootstrap.servers")  # of a cluster that runs on this machine
    names = set(json.loads(line)) - set(properties)
    assert names == {name for name in names if re.fullmatch("[a-z]+([A-Z][a-z]+)*", name)}


def test_deletions_are_reported_in_json(group: str, zk: KazooClient, run: Run, at: str) -> None:
    zk.ensure_path(f"/consumers/{group}/ids")
    delete = ("consumer-groups", "--zookeeper", at, "--delete", "--group", group, "--json")

    code, out, _ = run(*delete)
    assert (code, json.loads(out)["groups"]) == (0, [{"group": group, "deleted": True, "error": None}])
    code, out, _ = run(*delete)
    assert code == 1
    assert "does not exist" in json.loads(out)["groups"][0]["error"]


def test_offset_checker_lists_brokers_in_json(
    zkconsumer_cluster: Cluster, topic: Topics, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name = topic(4)
    zk.ensure_path(f"/consumers/{group}")
    checker = ("offset-checker", "--zookeeper", at, "--group", group, "--topic", name, "--broker-info", "--json")

    _, out, _ = run(*checker)

    assert sorted(json.loads(out)["brokers"].values()) == sorted(zkconsumer_cluster.bootstrap_servers.split(","))


def test_closed_pipe_is_not_an_error(at: str) -> None:
    command = [sys.executable, "-m", "zkconsumer", "consumer-groups", "--zookeeper", at, "--list"]
    reader, writer = os.pipe()
    os.close(reader)

    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60)

    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


# ---- offsets in Kafka -------------------------------------------------------------------------------


def test_watch_and_doctor_use_higher_offset(
    admin: Any, topic: Topics, consumer: Consumers, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    set_offsets(zk, group, name, {0: 99})
    connector = consumer(consumer_id="c", offsets_storage="kafka", dual_commit_enabled=False)
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 7)
    connector.commit_offsets()
    asked = ("--zookeeper", at, "--group", group)

    code, out, _ = run("doctor", *asked)
    assert code == 1
    assert "offset 99 is out of range: the log start offset is 0, and the end offset is 10" in out
    set_offsets(zk, group, name, {0: 3})
    code, out, _ = run("doctor", *asked, "--stale-after", 1)
    assert code == 1
    assert f"differ for 1 partition ({name}-0: 7 in Kafka, 3 in ZooKeeper)" in out
    assert out.splitlines()[1].endswith(": 1 problem found")
    _, out, _ = run("watch", *asked, "--count", 1)
    assert out.splitlines()[-1].split()[:5] == [name, "0", "7", "10", "3"]
