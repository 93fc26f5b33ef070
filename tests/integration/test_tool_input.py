"""Tests of the tools with wrong input, with groups that need attention, and with znodes of other clients."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Consumers, Run, Topics
from helpers.producing import numbers, produce
from helpers.waiting import wait_for
from helpers.znodes import registered, set_offsets, stored
from helpers.zookeeper import zookeeper_client
from kazoo.client import KazooClient

Doctor = Callable[..., dict[str, dict[str, str]]]


@pytest.fixture
def doctor(run: Run, group: str, at: str) -> Doctor:
    """Run ``doctor``; return the finding at each place."""

    def call(*arguments: object) -> dict[str, dict[str, str]]:
        code, out, _ = run("doctor", "--zookeeper", at, "--group", group, "--json", *arguments)
        findings = {finding["where"]: finding for finding in json.loads(out)["findings"]}
        assert code == (1 if findings else 0)
        return findings

    return call


@pytest.fixture
def other(zkconsumer_cluster: Cluster) -> Iterator[KazooClient]:
    """Return the session of another client; its ephemeral znodes are deleted after the test."""
    with zookeeper_client(zkconsumer_cluster.zookeeper_connect) as client:
        yield client


def paste(command: str) -> None:
    """Run a command as if it was pasted into a shell."""
    shell = f'zkconsumer() {{ {shlex.quote(sys.executable)} -m zkconsumer "$@"; }}; {command}'
    done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- topics, partitions and options that do not exist -------------------------------------------------


def generated_groups(zk: KazooClient) -> set[str]:
    """Return the groups whose names tools generated; tests in other processes delete theirs after some time."""
    return {name for name in zk.get_children("/consumers") if re.fullmatch(r"(console|perf)-consumer-\d+", name)}


@pytest.mark.parametrize(
    "tool",
    [
        ("offset-checker", "--group", "GROUP", "--zookeeper", "AT"),
        ("console-consumer", "--zookeeper", "AT"),
        ("consumer-perf", "--zookeeper", "AT", "--messages", "10"),
        ("simple-consumer-shell", "--broker-list", "BROKERS", "--no-wait-at-logend"),
        ("simple-consumer-shell", "--broker-list", "BROKERS", "--no-wait-at-logend", "--replica", "0"),
    ],
    ids=["offset-checker", "console-consumer", "consumer-perf", "shell", "shell of replica"],
)
def test_missing_topic_is_an_error(
    tool: tuple[str, ...], zkconsumer_cluster: Cluster, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    zk.ensure_path(f"/consumers/{group}/ids")
    groups = generated_groups(zk)
    values = {"GROUP": group, "AT": at, "BROKERS": zkconsumer_cluster.bootstrap_servers}
    started = time.monotonic()

    code, out, errors = run(*(values.get(word, word) for word in tool), "--topic", "none-such")

    assert code == 1
    assert "none-such" in out + errors
    assert "does not exist" in out + errors
    assert len((out + errors).splitlines()) == 1
    assert time.monotonic() - started < 10
    wait_for(lambda: generated_groups(zk) <= groups, what="generated groups to be deleted")


def test_console_waits_for_topics_of_filter(group: str, run: Run, at: str) -> None:
    console = ("console-consumer", "--zookeeper", at, "--group", group)

    assert run(*console, "--whitelist", "none-such", "--timeout-ms", 500)[0] == 0


def test_consumer_perf_deletes_generated_group(
    admin: Any, topic: Topics, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 5))
    perf = ("consumer-perf", "--zookeeper", at, "--topic", name, "--messages", 5, "--threads", 1)
    groups = generated_groups(zk)

    assert run(*perf)[0] == 0
    wait_for(lambda: generated_groups(zk) <= groups, what="generated groups to be deleted")
    assert run(*perf, "--group", group)[0] == 0
    assert stored(zk, group, name) == {0: "5"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/consumers/{group}/offsets/{topic}/0:-7", "with an offset between 0 and 9223372036854775807, got"),
        ("/consumers/{group}/offsets/{topic}/0:9223372036854775808", "with an offset between 0 and"),
        ("/consumers/{group}/offsets/{topic}/01:7", "must be /consumers/GROUP"),
        ("/consumers/{group}/offsets/{topic}/99999999999:7", "must be /consumers/GROUP"),
        ("/consumers/{group}/offsets/{topic}/9:7", "offsets for 1 nonexistent partition ({topic}-9)"),
        ("/consumers/{group}/offsets/none-such/0:7", "1 nonexistent partition (none-such-0)"),
        ("/consumers/{group}/offsets/{topic}/0:7\x1b[31m", r"\x1b[31m"),
    ],
    ids=["negative", "beyond long", "alias", "beyond int", "missing partition", "missing topic", "escape"],
)
def test_import_of_invalid_offset_writes_nothing(
    line: str, said: str, topic: Topics, group: str, zk: KazooClient, run: Run, at: str, tmp_path: Path
) -> None:
    name, file = topic(2), tmp_path / "offsets"
    wrong = line.format(group=group, topic=name)
    file.write_text(f"/consumers/{group}/offsets/{name}/1:12\n{wrong}\n")

    code, _, errors = run("import-offsets", "--zkconnect", at, "--input-file", file)

    assert code == 1
    assert said.format(topic=name) in errors
    assert "no offsets were written" in errors
    assert stored(zk, group, name) == {}


def test_export_leaves_out_negative_offsets(
    topic: Topics, group: str, zk: KazooClient, run: Run, at: str, tmp_path: Path
) -> None:
    name, file = topic(2), tmp_path / "offsets"
    set_offsets(zk, group, name, {0: -1, 1: 7})

    _, _, errors = run("export-offsets", "--zkconnect", at, "--group", group, "--output-file", file)

    assert f"/consumers/{group}/offsets/{name}/0 contains no offset" in errors
    assert run("import-offsets", "--zkconnect", at, "--input-file", file)[0] == 0


def test_misspelt_option_prints_usage_of_tool(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^2$"):
        run("doctor", "--group", "g", "--zookeper", "z")

    errors = capfd.readouterr().err
    assert errors.startswith("usage: zkconsumer doctor ")
    assert errors.endswith("unrecognized arguments: --zookeper z; did you mean --zookeeper?\n")


def test_broker_as_zookeeper_is_named(zkconsumer_cluster: Cluster, run: Run) -> None:
    broker = zkconsumer_cluster.bootstrap_servers.partition(",")[0]

    code, _, errors = run("doctor", "--group", "g", "--zookeeper", broker)

    assert code == 3
    assert f"{broker} is a Kafka broker, not a ZooKeeper server" in errors


def test_port_must_be_a_number(run: Run) -> None:
    code, _, errors = run("doctor", "--group", "g", "--zookeeper", "h:abc")

    assert code == 2
    assert "property 'zookeeper.connect' must be a list such as 'host:port,host:port/chroot'" in errors
    assert "got 'h:abc'" in errors


# ---- text from znodes -----------------------------------------------------------------------------------

FORGED = "\x1b[2J\x1b]0;title\x07\nforged line\u202e [red]x[/nothing]"


def test_text_of_znodes_cannot_control_terminal(
    topic: Topics, group: str, zk: KazooClient, other: KazooClient, run: Run, at: str, tmp_path: Path
) -> None:
    name = topic(2)
    registered(other, group, "a", {name: 1})
    other.create(f"/consumers/{group}/ids/{group}_b", FORGED.encode(), ephemeral=True)
    other.create(f"/consumers/{group}/ids/{group}_c\u202e", FORGED.encode(), ephemeral=True)
    other.create(f"/consumers/{group}/owners/{name}/0", FORGED.encode(), ephemeral=True, makepath=True)
    zk.create(f"/consumers/{group}/offsets/{name}/0", FORGED.encode(), makepath=True)
    zk.create(f"/consumers/{group}/offsets/{name}/²", b"1")
    at_group = ("--zookeeper", at, "--group", group)
    tools = [
        ("doctor", *at_group),
        ("offset-checker", *at_group),
        ("consumer-groups", *at_group, "--describe"),
        ("consumer-groups", "--zookeeper", at, "--delete", "--group", group),
        ("verify-rebalance", "--zookeeper.connect", at, "--group", group),
        ("watch", *at_group, "--count", 1),
        ("migrate-offsets", *at_group, "--to", "kafka"),
        ("export-offsets", "--zkconnect", at, "--group", group, "--output-file", tmp_path / "offsets"),
    ]
    for tool in tools:
        _, out, errors = run(*tool)
        text = out + errors
        assert all(line.isprintable() for line in text.split("\n")), tool
        assert not any(line.startswith("forged") for line in text.split("\n")), tool


def test_markup_in_znodes_is_not_interpreted_on_terminal(
    topic: Topics, group: str, other: KazooClient, at: str, tmp_path: Path
) -> None:
    name = topic()
    other.create(f"/consumers/{group}/owners/{name}/0", FORGED.encode(), ephemeral=True, makepath=True)
    command = [sys.executable, "-m", "zkconsumer", "watch", "--zookeeper", at, "--group", group, "--count", "1"]
    leader, follower = os.openpty()
    with open(leader, "rb", buffering=0) as terminal:
        environment = {**os.environ, "COLUMNS": "300", "TERM": "xterm"}
        process = subprocess.Popen(command, stdout=follower, stderr=subprocess.PIPE, env=environment, text=True)
        os.close(follower)
        shown = b""
        try:
            while data := terminal.read(65536):
                shown += data
        except OSError:
            pass  # the process has closed the terminal
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert b"[red]x[/nothing]" in shown
    assert b"\x1b]0;title" not in shown


# ---- doctor ---------------------------------------------------------------------------------------------


def test_slow_filter_of_other_member_is_reported(
    topic: Topics, group: str, other: KazooClient, doctor: Doctor, run: Run, at: str
) -> None:
    topic(1)
    registered(other, group, "slow", {r"([\w-]|[\w-]{2})+[.]x|never": 1}, "white_list")
    registered(other, group, "many", {"t": 10**9})
    started = time.monotonic()

    found = doctor()

    assert "takes more than" in found[f"member {group}_slow"]["problem"]
    assert "number of streams" in found[f"/consumers/{group}/ids/{group}_many"]["problem"]
    code, _, errors = run("verify-rebalance", "--zookeeper.connect", at, "--group", group)
    assert code == 1
    assert f"/consumers/{group}/ids/{group}_slow" in errors
    assert time.monotonic() - started < 30


def test_group_without_members_is_a_problem(topic: Topics, group: str, zk: KazooClient, run: Run, at: str) -> None:
    set_offsets(zk, group, topic(), {0: 0})

    code, out, _ = run("doctor", "--zookeeper", at, "--group", group)

    assert code == 1
    assert f"group {group}: the group has no members, so nothing is consumed\n" in out
    assert out.splitlines()[1] == f"group {group}: 0 members, 0 partitions owned: 1 problem found"
    code, out, errors = run("verify-rebalance", "--zookeeper.connect", at, "--group", group)
    assert (code, out, errors) == (1, f"Group {group} has no members\nRebalance operation failed !\n", "")


def test_remedy_for_stray_partition_deletes_only_its_offset(
    topic: Topics, consumer: Consumers, group: str, zk: KazooClient, doctor: Doctor
) -> None:
    name = topic(2)
    consumer(consumer_id="c", auto_commit_enable=False).create_message_streams({name: 1})
    set_offsets(zk, group, name, {0: 0, 1: 0, 99: 5})

    remedy = doctor()[f"partition {name}-99"]["remedy"]

    paste(remedy.removeprefix("delete the offset: "))
    assert stored(zk, group, name) == {0: "0", 1: "0"}
    assert doctor() == {}


def test_remedy_for_invalid_offset_deletes_only_that(
    topic: Topics, group: str, zk: KazooClient, doctor: Doctor
) -> None:
    name = topic(2)
    set_offsets(zk, group, name, {0: 0})
    zk.create(f"/consumers/{group}/offsets/{name}/1", b"many")

    remedy = doctor()[f"/consumers/{group}/offsets/{name}/1"]["remedy"]

    paste(remedy.partition("delete the offset: ")[2])
    assert stored(zk, group, name) == {0: "0"}


def test_negative_offset_is_reported(topic: Topics, group: str, zk: KazooClient, doctor: Doctor) -> None:
    name = topic(2)
    set_offsets(zk, group, name, {0: -7, 1: 0})

    finding = doctor()[f"partition {name}-0"]

    assert finding["problem"] == "the offset in ZooKeeper is negative (-7), so it is ignored"
    paste(finding["remedy"].partition("delete the offset: ")[2])
    assert stored(zk, group, name) == {1: "0"}


def test_remedy_for_offset_out_of_range_sets_only_that(
    admin: Any, topic: Topics, group: str, zk: KazooClient, doctor: Doctor
) -> None:
    name = topic(2)
    produce(admin, name, 0, numbers(0, 3))
    set_offsets(zk, group, name, {0: 1000, 1: 0})

    remedy = doctor()[f"partition {name}-0"]["remedy"]

    paste(remedy.partition("instead: ")[2])
    assert stored(zk, group, name) == {0: "0", 1: "0"}


def test_remedy_for_unused_group_deletes_it(
    topic: Topics, zk: KazooClient, run: Run, at: str, unique: Callable[[str], str]
) -> None:
    odd = f"{unique('g')} $(touch x) ' ;"
    set_offsets(zk, odd, topic(), {0: 0})
    set_offsets(zk, "kept", topic(), {0: 0})

    _, out, _ = run("doctor", "--zookeeper", at, "--group", odd)

    paste(out.partition("delete it: ")[2].partition("\n")[0])
    assert not zk.exists(f"/consumers/{odd}")
    assert zk.exists("/consumers/kept/offsets")


@pytest.mark.parametrize("to", ["zookeeper", "kafka"])
def test_differing_storages_are_found_and_aligned(
    to: str, topic: Topics, group: str, zk: KazooClient, run: Run, doctor: Doctor, at: str
) -> None:
    name = topic(2)
    set_offsets(zk, group, name, {0: 429, 1: 7})
    assert run("migrate-offsets", "--zookeeper", at, "--group", group, "--to", "kafka", "--execute")[0] == 0
    set_offsets(zk, group, name, {0: 100})

    finding = doctor()[f"group {group}"]
    _, out, errors = run("offset-checker", "--zookeeper", at, "--group", group, "--topic", name)

    differ = f"differ for 1 partition ({name}-0: 429 in Kafka, 100 in ZooKeeper)"
    assert differ in errors
    assert out.splitlines()[1].split()[3] == "429"
    from_kafka, from_zookeeper = finding["remedy"].partition("offsets.storage=kafka: ")[2].split("; otherwise: ")
    paste(from_kafka if to == "zookeeper" else from_zookeeper)
    assert stored(zk, group, name) == {0: "429" if to == "zookeeper" else "100", 1: "7"}
    assert run("offset-checker", "--zookeeper", at, "--group", group, "--topic", name)[2] == ""


def test_dual_commits_of_live_member_do_not_differ(
    admin: Any, topic: Topics, consumer: Consumers, group: str, zk: KazooClient, doctor: Doctor
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 5))
    connector = consumer(offsets_storage="kafka", dual_commit_enabled=True, auto_commit_interval_ms=50)
    [stream] = connector.create_message_streams({name: 1})[name]
    next(stream)
    next(stream)
    wait_for(lambda: stored(zk, group, name) == {0: "1"})

    assert doctor() == {}


def test_kafka_node_and_wvanbergen_are_recognized(
    topic: Topics, group: str, other: KazooClient, doctor: Doctor
) -> None:
    name = topic(3)
    registered(other, group, "node", {name: 1, "second": 1}, "white_list")
    for number in range(2):
        path = f"/consumers/{group}/owners/{name}/{number}"
        other.create(path, f"{group}_node".encode(), ephemeral=True, makepath=True)

    found = doctor()

    assert "but a client such as kafka-node" in found[f"member {group}_node"]["problem"]
    assert "use a different group.id for them" in found[f"member {group}_node"]["remedy"]
    assert f"{group}_node" in found[f"partition {name}-2"]["remedy"], "a likely cause of the unowned partition"
    assert f"partition {name}-0" not in found, "the owner is no zombie"


def test_owner_znodes_of_pykafka_are_recognized(topic: Topics, group: str, other: KazooClient, doctor: Doctor) -> None:
    name = topic(1)
    registered(other, group, "a", {name: 1})
    path = f"/consumers/{group}/owners/{name}/0-0"
    other.create(path, f"{group}:host:uuid".encode(), ephemeral=True, makepath=True)

    found = doctor()

    assert found[path]["problem"] == "the name must be a partition number, got '0-0'"
    assert "a client such as pykafka" in found[path]["remedy"]
    assert "the members of this group ignore them and read the same partitions" in found[path]["remedy"]


def test_persistent_owner_znode_is_reported(
    topic: Topics, group: str, zk: KazooClient, other: KazooClient, doctor: Doctor
) -> None:
    name = topic(1)
    registered(other, group, "a", {name: 1})
    zk.create(f"/consumers/{group}/owners/{name}/0", f"{group}_gone-0".encode(), makepath=True)

    assert "is persistent, so it is not deleted when a session ends" in doctor()[f"partition {name}-0"]["problem"]


def test_partitions_owned_by_no_strategy_name_other_clients(
    topic: Topics, group: str, other: KazooClient, doctor: Doctor
) -> None:
    name = topic(5)
    for member in "ab":
        registered(other, group, member, {name: 1})
    for number, member in enumerate("babba"):
        path = f"/consumers/{group}/owners/{name}/{number}"
        other.create(path, f"{group}_{member}-0".encode(), ephemeral=True, makepath=True)

    finding = doctor()[f"group {group}"]

    assert "do not match any assignment strategy" in finding["problem"]
    assert "other clients assign partitions differently" in finding["remedy"]


@pytest.mark.parametrize(("timestamp", "is_read"), [(1_700_000_000, True), (1_700_000_000_000, False), (1.5, False)])
def test_timestamp_may_be_32_bit_number(
    timestamp: float, is_read: bool, topic: Topics, group: str, other: KazooClient, doctor: Doctor
) -> None:
    content = {"version": 1, "subscription": {topic(): 1}, "pattern": "static", "timestamp": timestamp}
    path = f"/consumers/{group}/ids/{group}_a"
    other.create(path, json.dumps(content).encode(), ephemeral=True, makepath=True)

    assert (f"member {group}_a" not in doctor()) is is_read


def test_deleting_only_topic_deletes_group(topic: Topics, group: str, zk: KazooClient, run: Run, at: str) -> None:
    one, two = topic(), topic()
    for name in (one, two):
        set_offsets(zk, group, name, {0: 1})
        zk.ensure_path(f"/consumers/{group}/owners/{name}")
    delete = ("consumer-groups", "--zookeeper", at, "--delete", "--group", group, "--topic")

    assert run(*delete, "none-such")[0] == 0
    assert run(*delete, one)[0] == 0
    assert stored(zk, group, two) == {0: "1"}
    assert run(*delete, two)[0] == 0
    assert not zk.exists(f"/consumers/{group}")


def test_deleted_topic_leaves_no_topic_ids(topic: Topics, group: str, zk: KazooClient, run: Run, at: str) -> None:
    one, two, gone = topic(), topic(), "none-such"
    ids = f"/consumers/{group}/zkconsumer/offset-topic-ids"
    for name in (one, two, gone):
        set_offsets(zk, group, name, {0: 1, 1: 1})
        for number in (0, 1):
            zk.ensure_path(f"{ids}/{name}/{number}")
    delete = ("consumer-groups", "--zookeeper", at, "--delete", "--group", group, "--topic")

    assert run(*delete, one)[0] == 0
    assert run(*delete, gone, "--partition", 1)[0] == 0
    assert sorted(zk.get_children(ids)) == sorted([two, gone])
    assert zk.get_children(f"{ids}/{gone}") == ["0"]


def test_offset_of_existing_partition_in_active_group_is_kept(
    topic: Topics, consumer: Consumers, group: str, zk: KazooClient, run: Run, at: str
) -> None:
    name = topic()
    consumer(auto_commit_enable=False).create_message_streams({name: 1})
    set_offsets(zk, group, name, {0: 1})
    delete = ("consumer-groups", "--zookeeper", at, "--delete", "--topic", name, "--partition", 0)

    assert run(*delete, "--group", group)[0] == 1
    assert "requires --delete, --topic and --group" in run(*delete)[2]
    assert stored(zk, group, name) == {0: "1"}


def test_watch_shows_unknown_lag(topic: Topics, group: str, zk: KazooClient, run: Run, at: str) -> None:
    name = topic(2)
    zk.ensure_path(f"/consumers/{group}/owners/{name}")
    watch = ("watch", "--zookeeper", at, "--group", group, "--count", 1)
    assert run(*watch)[1].splitlines()[0] == f"group {group}: 0 members, 2 partitions, lag unknown"
    set_offsets(zk, group, name, {0: -1})
    assert run(*watch)[1].splitlines()[0] == f"group {group}: 0 members, 2 partitions, lag unknown"
    set_offsets(zk, group, name, {0: 0})
    title = f"group {group}: 0 members, 2 partitions, lag 0, excluding 1 partition with unknown lag"
    assert run(*watch)[1].splitlines()[0] == title
