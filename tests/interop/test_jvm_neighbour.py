"""Tests of zkconsumer and JVM consumers in one group."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from helpers.aliases import Topics
from helpers.group_members import IdleHandler
from helpers.producing import Load, numbers, produce
from helpers.waiting import wait_for, wait_until_equal
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE

from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.devcluster import DevCluster, ExistingCluster
from zkconsumer.rebalance.member_factory import create_member
from zkconsumer.zookeeper.registry import Registration

from .conftest import COMMIT_INTERVAL_MS
from .group import Group
from .jvm import ChildConsumer, jvm_consumer, jvm_filter, jvm_performance, our_consumer, our_filter
from .neighbours import Neighbours

Child = Callable[..., ChildConsumer]


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_joins_and_kills_lose_nothing(neighbours: Callable[..., Neighbours]) -> None:
    """A killed member repeats at most the records of one commit interval."""
    group = neighbours()
    most = group.load.per_second * COMMIT_INTERVAL_MS / 1000
    repeated: list[tuple[str, int]] = []

    def step(what: str) -> None:
        group.wait_until_balanced()
        repeated.append((what, group.wait_until_committed()))
        # Vary the time of the next kill between two commits.
        group.load.wait_for_more(len(repeated) * 7 % 10 * int(group.load.per_second) // 10)

    ours = group.join(our_consumer)
    for turn in (1, 2, 3):
        jvm = group.join(jvm_consumer)
        step(f"{turn}: the JVM joined")
        group.kill(ours)
        step(f"{turn}: zkconsumer was killed")
        ours = group.join(our_consumer)
        step(f"{turn}: zkconsumer joined")
        group.kill(jvm)
        step(f"{turn}: the JVM was killed")

    group.wait_until_read(group.load.stop())
    assert [(what, count) for what, count in repeated if count > most] == []
    assert group.failures == []


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_concurrent_starts_share_partitions(neighbours: Callable[..., Neighbours]) -> None:
    group = neighbours()
    group.join(our_consumer)
    group.wait_until_committed()

    for make in (jvm_consumer, our_consumer, jvm_consumer, our_consumer):
        group.start(make)
    shares = group.wait_until_balanced()

    assert sorted(map(len, shares.values())) == [1, 1, 2, 2, 2]
    group.wait_until_read(group.load.stop())
    assert group.failures == []


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_kill_during_join_of_jvm_is_survived(
    neighbours: Callable[..., Neighbours],
) -> None:
    """The znodes of the killed member block the JVM until its session expires; the JVM has only four attempts."""
    group = neighbours()
    ours = group.join(our_consumer)
    group.wait_until_committed()

    jvm = group.start(jvm_consumer)
    wait_for(lambda: group.group.consumer_id(jvm.name) in group.group.registrations(), what="the JVM has registered")
    group.kill(ours)

    assert group.wait_until_balanced() == {jvm.name: list(range(8))}
    group.wait_until_read(group.load.stop())
    assert group.failures == []


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_kill_of_jvm_during_join_is_waited_for(neighbours: Callable[..., Neighbours]) -> None:
    group = neighbours()
    jvm = group.join(jvm_consumer)
    group.wait_until_committed()

    ours = group.start(our_consumer)
    wait_for(lambda: group.group.consumer_id(ours.name) in group.group.registrations(), what="it has registered")
    group.kill(jvm)

    assert group.wait_until_balanced() == {ours.name: list(range(8))}
    group.wait_until_read(group.load.stop())
    assert group.failures == []


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_replaced_member_lowers_no_offset(
    neighbours: Callable[..., Neighbours],
) -> None:
    group = neighbours()
    ours, jvm = group.join(our_consumer), group.join(jvm_consumer)
    group.wait_until_committed()
    highest: dict[int, int] = {}
    went_back: list[tuple[int, int, int]] = []

    def watch() -> bool:
        for partition, offset in group.group.stored().items():
            if offset < highest.get(partition, -1):
                went_back.append((partition, highest[partition], offset))
            highest[partition] = max(offset, highest.get(partition, -1))
        return True

    ours.pause()
    jvm_alone = {group.group.consumer_id(jvm.name)}
    wait_for(lambda: watch() and group.group.is_balanced(jvm_alone), what="the JVM has all partitions")
    group.wait_until_committed()
    ours.resume()
    both = {group.group.consumer_id(member.name) for member in (ours, jvm)}
    wait_for(lambda: watch() and group.group.is_balanced(both), what="both own their assigned partitions")
    group.wait_until_committed()

    watch()
    assert went_back == []
    group.wait_until_read(group.load.stop())
    assert group.failures == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2])
def test_random_joins_and_stops_lose_nothing(seed: int, neighbours: Callable[..., Neighbours]) -> None:
    """The events do not wait for a balanced group; half of the departures are kills."""
    rng = random.Random(seed)
    group = neighbours()
    group.join(our_consumer)
    end = time.monotonic() + 60

    while time.monotonic() < end:
        if len(group.alive) == 1 or (len(group.alive) < 4 and rng.random() < 0.5):
            group.start(rng.choice([our_consumer, jvm_consumer]))
        else:
            rng.choice([group.kill, group.leave])(rng.choice(group.alive))
        group.load.wait_for_more(rng.randrange(3 * int(group.load.per_second)))

    group.wait_until_balanced()
    group.wait_until_read(group.load.stop(), timeout=60)
    assert group.failures == []


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_two_joins_wait_for_one_handover(
    child: Child, topic: Topics, group: str, config: Callable[..., ConsumerConfig], zk: KazooClient
) -> None:
    """The second join changes the JVM's assignment; its partitions must be released within its four attempts."""
    name = topic(8)
    znodes = Group(zk, group, name)
    registration = Registration.static({name: 1})
    ours = create_member(
        config(consumer_id="c-busy"), registration, IdleHandler(release_timeout_s=5.0), auto_commit=False
    )
    ours.start()
    try:
        jvm = child(jvm_consumer, "b-jvm", name, zookeeper_session_timeout_ms=10_000)
        wait_for(lambda: "end rebalancing consumer" in jvm.log.read_text(), what="the JVM has made one attempt")
        child(our_consumer, "a-ours", name, zookeeper_session_timeout_ms=10_000)
        wanted = {znodes.consumer_id(one) for one in ("a-ours", "b-jvm", "c-busy")}
        wait_for(lambda: znodes.is_balanced(wanted) or not jvm.is_running)

        assert jvm.failures == []
        assert [len(partitions) for _, partitions in sorted(znodes.shares().items())] == [3, 3, 2]
    finally:
        ours.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("option", "expression", "is_selected"),
    [
        pytest.param("--whitelist", "{start}.*", True, marks=pytest.mark.slow),
        pytest.param("--whitelist", " 'other, {start}-[0-9a-f]+' ", True),
        pytest.param("--whitelist", "{start}", False, marks=pytest.mark.slow),
        # 1.1.1 escapes the expression twice and registers a pattern that matches nothing, and uses that pattern.
        pytest.param("--whitelist", "{start}\\-.*", False),
        pytest.param("--blacklist", "other|{start}x.*", True, marks=pytest.mark.slow),
        pytest.param("--blacklist", "(?:o|{start}).+", False, marks=pytest.mark.slow),
    ],
)
def test_jvm_with_filter_gets_its_share(
    option: str,
    expression: str,
    is_selected: bool,
    child: Child,
    topic: Topics,
    group: str,
    consumer: Callable[..., ZookeeperConsumerConnector],
    zk: KazooClient,
) -> None:
    name = topic(4)
    znodes = Group(zk, group, name)
    consumer(consumer_id="ours").create_message_streams({name: 1})

    jvm = child(jvm_filter(option, expression.format(start=name.rpartition("-")[0])), "jvm", name)

    shared = {f"{group}_jvm": [0, 1], f"{group}_ours": [2, 3]}
    if is_selected:
        wait_until_equal(znodes.shares, shared)
    else:
        wait_for(lambda: "end rebalancing consumer" in jvm.log.read_text(), what="the JVM has rebalanced")
        wait_until_equal(znodes.shares, {f"{group}_ours": [0, 1, 2, 3]})
    assert jvm.failures == []


# ---- orderly handover ---------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_group_moves_to_jvm_and_back_without_loss(
    zkconsumer_cluster: DevCluster | ExistingCluster, child: Child, topic: Topics, group: str, zk: KazooClient
) -> None:
    """Each member reads all records before it is stopped, so its committed offsets are the end offsets."""
    name = topic(4)
    znodes = Group(zk, group, name)
    expected = numbers(0, 0)
    for turn, make in enumerate([our_consumer, jvm_consumer, our_consumer, jvm_consumer]):
        for partition in range(4):
            content = [b"%d-%d-%d" % (turn, partition, number) for number in range(100)]
            produce(zkconsumer_cluster.admin, name, partition, content)
            expected += content
        member = child(make, f"{turn}-{make.__name__}", name)
        wait_for(lambda: len(member.values) >= 400, what=f"{member.name} has read all records")

        member.stop()

        assert f"Processed a total of {len(member.values)} messages" in member.messages
        assert sorted(member.values) == sorted(expected[-400:])
        assert znodes.stored() == dict.fromkeys(range(4), 100 * (turn + 1))
        wait_until_equal(lambda: (znodes.registrations(), znodes.owners()), ({}, {}))


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_clean_stops_under_load_lose_nothing(
    neighbours: Callable[..., Neighbours],
) -> None:
    """zkconsumer repeats one message; the JVM delivers the queued chunks after its last commit and repeats them."""
    group = neighbours()
    group.join(our_consumer)
    group.wait_until_committed()
    for make in (jvm_consumer, our_consumer, jvm_consumer):
        group.join(make)
        group.wait_until_committed()
        leaving = group.alive[0]

        group.leave(leaving)

        group.wait_until_balanced()
        repeated = group.wait_until_committed()
        assert repeated <= (1 if "our" in leaving.name else group.load.per_second // 10)
    group.wait_until_read(group.load.stop())
    assert group.failures == []


# ---- content of znodes --------------------------------------------------------------------------------------


def pattern(text: bytes, group: str) -> str:
    """Replace numbers by ``n`` and the hexadecimal end of a consumer id by ``h``."""
    plain = text.decode().replace(group, "GROUP")
    return re.sub(r"[0-9]{13}", "MS", re.sub(r"(?<=[0-9]{13}-)[0-9a-f]{1,8}(?=-|$)", "HEX", plain))


@pytest.mark.timeout(120)
def test_znodes_of_both_are_identical(
    child: Child,
    topic: Topics,
    load: Callable[..., Load],
    consumer: Callable[..., ZookeeperConsumerConnector],
    unique: Callable[[str], str],
    zk: KazooClient,
) -> None:
    name = topic(4)
    groups = {"ours": unique("ours"), "jvm": unique("jvm")}
    load(name, 4)
    child(jvm_performance, "jvm", name, group_id=groups["jvm"], consumer_id=None, auto_commit_interval_ms=100)
    streams = consumer(group_id=groups["ours"], auto_commit_interval_ms=100).create_message_streams({name: 2})[name]
    for stream in streams:
        next(stream)
        next(stream)
    wait_for(lambda: all(len(Group(zk, group, name).stored()) == 4 for group in groups.values()))

    looks: dict[str, Any] = {}
    for kind, group in groups.items():
        nodes: dict[str, Any] = {}
        for path in all_below(zk, f"/consumers/{group}"):
            data, stat = zk.get(path)
            numbered = re.sub(rb"^[0-9]+$", b"OFFSET", data or b"")
            acls, _ = zk.get_acls(path)
            nodes[pattern(path.encode(), group)] = (pattern(numbered, group), stat.ephemeralOwner != 0, acls)
        looks[kind] = nodes

    assert looks["ours"] == looks["jvm"]
    [registration] = [data for path, (data, *_) in looks["ours"].items() if "/ids/" in path]
    assert registration == f'{{"version":1,"subscription":{{"{name}":2}},"pattern":"static","timestamp":"MS"}}'
    assert all(acls == OPEN_ACL_UNSAFE for _, _, acls in looks["ours"].values())


def all_below(zk: KazooClient, path: str) -> list[str]:
    """Return a path and all paths below it."""
    return [path, *(below for child in sorted(zk.get_children(path)) for below in all_below(zk, f"{path}/{child}"))]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_filter_registrations_equal_those_of_jvm(child: Child, topic: Topics, group: str, zk: KazooClient) -> None:
    """The bytes are equal if nothing is escaped; otherwise they decode to what members up to 1.0.0 write."""
    name = topic()

    def registered(make: Any, member: str) -> bytes:
        # The JVM's tool rejects auto.offset.reset=smallest for a group with offsets.
        child(make, member, name, auto_offset_reset="largest")
        return bytes(zk.get(f"/consumers/{group}/ids/{group}_{member}")[0])

    for option in ("--whitelist", "--blacklist"):
        for release in ("0.8.2.2", "1.1.1"):
            plain = f"none.+|{name}[x-z]"
            ours = registered(our_filter(option, plain), f"ours-{option[2:]}-{release[0]}")
            theirs = registered(jvm_filter(option, plain, release), f"jvm-{option[2:]}-{release[0]}")
            assert pattern(ours, group) == pattern(theirs, group)
    ours = registered(our_filter("--whitelist", r"none\.x|a/b"), "ours-escaped")
    theirs = registered(jvm_filter("--whitelist", r"none\.x|a/b", "0.8.2.2"), "jvm-escaped")
    assert json.loads(ours)["subscription"] == json.loads(theirs)["subscription"] == {r"none\.x|a/b": 1}
