"""zkconsumer and JVM members of several releases join, leave and are killed at random under load.

The same schedule is run with JVM members alone for comparison.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from helpers.waiting import wait_for
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer import TopicPartition, Whitelist
from zkconsumer.devcluster import DevCluster, ExistingCluster
from zkconsumer.devcluster.load import SteadyLoad
from zkconsumer.rebalance.assignors import assign, group_threads_by_topic
from zkconsumer.zookeeper.registry import GroupPaths, Registration

from .jvm import WIDTH, ChildConsumer, Maker, jvm_filter, our_filter

_PER_SECOND = 2000
_PARTITIONS = 8
OURS = "zkconsumer"


@dataclass(frozen=True)
class Setting:
    """The assignment strategy of a group and the releases of its JVM members."""

    strategy: str
    releases: tuple[str, ...]
    order: str = "1.0"


RANGE = Setting("range", ("0.8.2.2", "0.11.0.3", "1.1.1"))
ROUND_ROBIN_1 = Setting("roundrobin", ("1.1.1",), "1.0")
ROUND_ROBIN_0 = Setting("roundrobin", ("0.8.2.2", "0.11.0.3"), "0.10.2")


@dataclass
class Outcome:
    """The result of running a schedule."""

    seconds: list[float] = field(default_factory=list)  # per event, until all partitions have the expected owners
    written: int = 0
    lost: int = 0
    repeated: int = 0
    repeated_among_ours: int = 0  # between two zkconsumer members that were not killed
    failures: list[str] = field(default_factory=list)

    def row(self, name: str) -> str:
        """Return a line of the table that the test prints."""
        worst, median = max(self.seconds), statistics.median(self.seconds)
        return (
            f"{name:<12} {len(self.seconds):>6} {median:>8.2f} {worst:>8.2f} {self.written:>9,} {self.lost:>5} "
            f"{self.repeated:>9,} {self.repeated_among_ours:>11}"
        )


class MixedGroup:
    """A group on three topics, with its load, its members, and the numbers that they have read."""

    def __init__(
        self, cluster: DevCluster | ExistingCluster, zk: KazooClient, group: str, topics: list[str], setting: Setting
    ) -> None:
        self._cluster, self._zk, self._paths = cluster, zk, GroupPaths(group)
        self._setting, self._group, self._topics = setting, group, topics
        self.partitions = [TopicPartition(topic, number) for topic in topics for number in range(_PARTITIONS)]
        self.alive: dict[str, ChildConsumer] = {}
        self.all: dict[str, ChildConsumer] = {}
        self.killed: set[str] = set()
        self.readers: dict[int, list[str]] = {}
        for partition in self.partitions:  # without an offset, the console consumer of 0.8.2 starts at the end
            zk.create(self._paths.offset(partition), b"0", makepath=True)
        self._load = SteadyLoad(cluster.new_admin(), self.partitions, per_second=_PER_SECOND, width=WIDTH)

    def start(self, kind: str, folder: Path) -> None:
        """Start a zkconsumer member, or a JVM member of a release."""
        name = f"m{len(self.all)}-{kind.replace('.', '')}"
        expression = "|".join(self._topics)
        maker: Maker = our_filter("--whitelist", expression)
        if kind != OURS:
            maker = jvm_filter("--whitelist", expression, kind)
        settings: dict[str, object] = {
            "zookeeper.connect": self._cluster.zookeeper_connect,
            "group.id": self._group,
            "consumer.id": name,
            "auto.offset.reset": "largest",
            "auto.commit.interval.ms": 1000,
            "zookeeper.session.timeout.ms": 3000,
            "zookeeper.connection.timeout.ms": 20_000,
            "rebalance.max.retries": 10,
            "partition.assignment.strategy": self._setting.strategy,
        }
        if kind == OURS:
            settings["roundrobin.order"] = self._setting.order
        member = maker(name, folder, settings, "")
        self.alive[name] = self.all[name] = member
        member.start()
        path = self._paths.registration(f"{self._group}_{name}")
        wait_for(lambda: self._zk.exists(path) or not member.is_running, what=f"{name} has registered")
        assert member.is_running, member.log_end()

    def leave(self, name: str) -> None:
        """Stop a member with SIGTERM."""
        self.alive.pop(name).stop()

    def kill(self, name: str) -> None:
        """Kill a member with SIGKILL."""
        self.killed.add(name)
        self.alive.pop(name).kill()

    def wait_until_balanced(self, timeout: float = 60.0) -> None:
        """Wait until each partition is owned by its assigned thread."""
        wanted = {f"{self._group}_{name}" for name in self.alive}

        def balanced() -> bool:
            try:
                members = {
                    name: Registration.from_json(name, self._zk.get(self._paths.registration(name))[0])
                    for name in self._zk.get_children(self._paths.ids)
                }
                if members.keys() != wanted:
                    return False
                owners = {p: self._zk.get(self._paths.owner(p))[0].decode() for p in self.partitions}
            except NoNodeError:
                return False
            return owners == self._predicted(members)

        wait_for(balanced, timeout, what=f"{sorted(wanted)} own their assigned partitions")

    def _predicted(self, members: dict[str, Registration]) -> dict[TopicPartition, str]:
        static = {}
        for name, member in members.items():
            [(regex, streams)] = member.subscription.items()
            static[name] = Registration({t: streams for t in self._topics if Whitelist(regex).is_topic_allowed(t)})
        sizes = {topic: list(range(_PARTITIONS)) for topic in self._topics}
        threads = group_threads_by_topic(static, self._topics)
        return assign(self._setting.strategy, self._setting.order, sizes, threads)

    def record_reads(self) -> None:
        """Record the numbers that the members have read."""
        for name, member in self.all.items():
            for number in member.new_numbers():
                self.readers.setdefault(number, []).append(name)

    def finish(self, outcome: Outcome) -> None:
        """Stop the load, wait until all numbers are read, and count lost and repeated ones."""
        outcome.written = self._load.stop()

        def all_is_read() -> bool:
            self.record_reads()
            return len(self.readers) >= outcome.written

        try:
            wait_for(all_is_read, 60)
        except AssertionError:
            pass  # counted as lost below
        outcome.lost = outcome.written - len(self.readers)
        outcome.repeated = sum(len(names) - 1 for names in self.readers.values())
        outcome.repeated_among_ours = sum(
            len(names) - 1
            for names in self.readers.values()
            if len(names) > 1 and all(OURS in name for name in names) and not self.killed.intersection(names)
        )
        outcome.failures = [line for member in self.all.values() for line in member.failures]

    def close(self) -> None:
        """Stop the load and kill all members."""
        self._load.stop()
        for member in self.all.values():
            member.kill()


def schedule(seed: int, events: int, releases: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return random events: ``(start, kind)``, or ``(leave | kill, kind)`` of a running member."""
    rng, steps, alive = random.Random(seed), [("start", OURS), ("start", releases[0])], [OURS, releases[0]]
    while len(steps) < events:
        if len(alive) < 2 or (len(alive) < 5 and rng.random() < 0.55):
            kind = OURS if rng.random() < 0.5 else rng.choice(releases)
            steps.append(("start", kind))
            alive.append(kind)
        else:
            kind = alive.pop(rng.randrange(len(alive)))
            steps.append((rng.choice(["leave", "kill"]), kind))
    return steps


@pytest.fixture
def played(
    zkconsumer_cluster: DevCluster | ExistingCluster,
    zk: KazooClient,
    topic: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> Iterator[Callable[..., Outcome]]:
    """Run a schedule with a new group; ``ours`` is the kind of member to start instead of zkconsumer."""
    groups: list[MixedGroup] = []

    def play(steps: list[tuple[str, str]], setting: Setting, ours: str = OURS) -> Outcome:
        group = MixedGroup(zkconsumer_cluster, zk, unique("g"), [topic(_PARTITIONS) for _ in range(3)], setting)
        groups.append(group)
        folder = tmp_path / str(len(groups))
        folder.mkdir()
        outcome = Outcome()
        for what, kind in steps:
            real = ours if kind == OURS else kind
            if what == "start":
                group.start(real, folder)
            else:
                name = next(name for name in group.alive if name.endswith("-" + real.replace(".", "")))
                (group.leave if what == "leave" else group.kill)(name)
            begun = time.monotonic()
            group.wait_until_balanced()
            outcome.seconds.append(time.monotonic() - begun)
            group.record_reads()
        group.finish(outcome)
        return outcome

    yield play
    for group in groups:
        group.close()


@pytest.mark.parametrize(
    ("setting", "events"),
    [
        pytest.param(RANGE, 4, marks=pytest.mark.timeout(200)),
        pytest.param(RANGE, 30, marks=[pytest.mark.slow, pytest.mark.timeout(1500)]),
        pytest.param(ROUND_ROBIN_1, 10, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
        pytest.param(ROUND_ROBIN_0, 10, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
    ids=["range sample", "range", "round-robin 1.x", "round-robin 0.x"],
)
def test_members_of_all_releases_share_group(
    setting: Setting, events: int, played: Callable[..., Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    steps = schedule(events, events, setting.releases)

    mixed = played(steps, setting)

    assert mixed.failures == []
    assert (mixed.lost, mixed.repeated_among_ours) == (0, 0)
    if events < 10:  # the times of fewer events are not significant
        return
    baseline = played(steps, setting, ours=setting.releases[-1])
    with capsys.disabled():
        print(f"\n{setting.strategy} {'+'.join(setting.releases)}: seconds until all partitions are owned")
        print("members      events   median    worst   written  lost  repeated  among ours")
        print(mixed.row("with ours"))
        print(baseline.row("JVMs alone"))
    noise = 0.0 if events >= 30 else 1.0  # seconds; starting JVMs use the same cores
    assert statistics.median(mixed.seconds) <= statistics.median(baseline.seconds) + noise
    assert max(mixed.seconds) <= max(baseline.seconds) + 5  # a starting JVM uses the same cores
    kills = Counter(what for what, _ in steps)["kill"]  # each repeats at most one second of records
    assert mixed.repeated <= max(baseline.repeated, kills * _PER_SECOND)
