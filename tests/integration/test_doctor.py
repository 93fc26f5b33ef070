"""Tests of ``zkconsumer doctor`` with real groups, and of the offset that it and ``watch`` use."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from helpers.aliases import Consumers, Run, Topics
from helpers.producing import numbers, produce
from helpers.reading import take
from helpers.waiting import wait_for
from helpers.znodes import registered, set_offsets
from kazoo.client import KazooClient

from zkconsumer.rebalance.assignors import assign_roundrobin


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
