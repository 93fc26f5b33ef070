"""Tests of the other command line tools with real groups: output and exit codes."""

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
from helpers.producing import numbers, produce
from helpers.reading import take
from helpers.znodes import set_offsets
from kazoo.client import KazooClient

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
