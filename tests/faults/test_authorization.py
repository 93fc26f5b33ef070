"""A right is withdrawn from consumers and tools, and given back: what they report, and that they resume.

The offsets are in ZooKeeper where the brokers are in ZooKeeper mode, and in Kafka where they are in KRaft mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from helpers.configurations import consumer_config
from helpers.producing import numbers, produce
from helpers.rights import Brokers, Case, Moment, Right, Rights, cases, running_clusters
from helpers.threads import InThread, in_thread
from helpers.waiting import wait_for

from zkconsumer.devcluster import DevCluster
from zkconsumer.health import HealthState
from zkconsumer.tools.cli import main

from .faults import Member

pytestmark = pytest.mark.timeout(120)

COUNT = 20
#: The codes of health reasons.
CODES = {
    Right.DESCRIBE: "topic_authorization_failed",
    Right.READ: "topic_authorization_failed",
    Right.GROUP: "group_authorization_failed",
}
#: One case of each right and moment is in ``make test``.
FAST = {
    "plain-read-start-kraft",
    "plain-describe-run-kraft",
    "plain-group-rebalance-zookeeper",
    "tool-group-start-zookeeper",
}


def marked(client: str, moments: list[Moment]) -> list[object]:
    """Return the cases of a client; those that are not in ``FAST`` are slow."""
    return [
        pytest.param(case, id=str(case), marks=[] if str(case) in FAST else pytest.mark.slow)
        for case in cases({client: moments})
    ]


clusters = pytest.fixture(scope="module")(running_clusters)


class Scene:
    """A topic with two partitions and twenty records each time, a group, and the rights to both."""

    def __init__(self, cluster: DevCluster, case: Case, unique: Callable[[str], str], stack: ExitStack) -> None:
        self.cluster, self.case, self._stack = cluster, case, stack
        self.topic, self.group = cluster.create_topic(unique("t"), 2), unique("g")
        self.rights = stack.enter_context(Rights(cluster, case, self.topic, self.group))
        self.produced = 0
        self.members: list[Member] = []

    def produce(self) -> None:
        for partition in range(2):
            produce(self.cluster.admin, self.topic, partition, numbers(self.produced, self.produced + COUNT // 2))
        self.produced += COUNT // 2

    def start(self, consumer_id: str) -> Member:
        """Start a member, which may block until it has the right."""
        config = consumer_config(
            self.cluster,
            group_id=self.group,
            consumer_id=consumer_id,
            auto_commit_interval_ms=100,
            rebalance_max_retries=200,
            rebalance_backoff_ms=200,
            metadata_max_age_ms=500,
            consumer_timeout_ms=-1,
            **{name.replace(".", "_"): value for name, value in self.rights.settings.items()},
        )
        member = Member(config, {self.topic: 1})
        self.members.append(member)
        self._stack.callback(member.leave)
        return member

    def start_in_thread(self, consumer_id: str) -> InThread:
        return in_thread(lambda: self.start(consumer_id))

    @property
    def read(self) -> set[tuple[int, int]]:
        """Partition and offset of the records that were read."""
        return {(message.partition, message.offset) for member in self.members for message in member.seen}

    def wait_until_all_read(self) -> None:
        expected = {(partition, offset) for partition in range(2) for offset in range(self.produced)}
        wait_for(lambda: self.read == expected, 30, what=f"all records are read; now {len(self.read)}")


@pytest.fixture
def scene(case: Case, clusters: Callable[[Brokers], DevCluster], unique: Callable[[str], str]) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(clusters(case.brokers), case, unique, stack)


def wait_for_reason(member: Member, right: Right) -> None:
    """Wait until the health names the missing right, and its message the remedy."""

    def found() -> bool:
        health = member.connector.health
        messages = [reason.message for reason in health.reasons if reason.code == CODES[right]]
        return health.state is HealthState.STALLED and any("grant READ" in m or "ACL permits" in m for m in messages)

    wait_for(found, 20, what=f"{CODES[right]} is reported; now {member.connector.health}")


def wait_until_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Wait until a warning names the missing right."""
    wait_for(
        lambda: any(text in caplog.text for text in ("AUTHORIZATION_FAILED", "denied by its ACL")),
        20,
        what="a warning names the missing right",
    )


@pytest.mark.parametrize("case", marked("plain", [Moment.START, Moment.RUN, Moment.REBALANCE]))
def test_consumer_reports_missing_right_and_resumes(case: Case, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.produce()
    if case.moment is Moment.START:
        scene.rights.withdraw(case.right)
        starting = scene.start_in_thread("a")
        wait_until_logged(caplog)
        assert scene.read == set() or case.right is Right.GROUP
        scene.rights.restore()
        one = starting.result(30)
    else:
        one = scene.start("a")
        scene.wait_until_all_read()
        wait_for(lambda: scene.rights.committed() == dict.fromkeys(range(2), scene.produced))
        scene.rights.withdraw(case.right)
        if case.moment is Moment.RUN:
            if case.right is Right.READ:
                wait_for_reason(one, case.right)
            elif case.right is Right.DESCRIBE and case.brokers is not Brokers.ZOOKEEPER:
                wait_for_reason(one, case.right)  # found by the next poll; records are still fetched
            elif case.right is Right.GROUP:
                scene.produce()
                scene.wait_until_all_read()  # the delivery continues, but nothing can be committed
                wait_for_reason(one, case.right)
            scene.rights.restore()
        else:
            caplog.clear()
            joining = scene.start_in_thread("b")
            wait_until_logged(caplog)
            wait_for(lambda: len(one.connector.assignment) < 2, 20, what="a partition is released")
            scene.rights.restore()
            joining.result(30)
    scene.produce()
    scene.wait_until_all_read()
    wait_for(lambda: all(member.connector.health.is_healthy for member in scene.members), 30)
    ends = dict.fromkeys(range(2), scene.produced)
    wait_for(lambda: scene.rights.committed() == ends, what="all offsets are committed")


@pytest.mark.parametrize("case", marked("tool", [Moment.START]))
def test_tools_name_missing_right_and_recover(case: Case, scene: Scene, capfd: pytest.CaptureFixture[str]) -> None:
    scene.produce()
    one = scene.start("a")
    scene.wait_until_all_read()
    wait_for(lambda: scene.rights.committed() == dict.fromkeys(range(2), scene.produced))
    one.leave()
    settings = scene.rights.settings
    given = ["--zookeeper", scene.cluster.zookeeper_connect, "--group", scene.group]
    if "bootstrap.servers" in settings:
        given += ["--bootstrap-server", settings["bootstrap.servers"]]

    def run(tool: str, *arguments: str) -> tuple[int, str]:
        code = main([tool, *given, *arguments])
        shown = capfd.readouterr()
        return code, shown.out + shown.err

    scene.rights.withdraw(case.right)
    denied = [run(*tool)[1] for tool in TOOLS]
    needed = case.right is not Right.READ  # the tools read no records
    assert any("AUTHORIZATION_FAILED" in text or "denied by its ACL" in text for text in denied) is needed, denied
    assert not any("does not exist" in text for text in denied)
    scene.rights.restore()
    granted = [run(*tool)[1] for tool in TOOLS]
    assert not any("AUTHORIZATION_FAILED" in text or "denied" in text for text in granted), granted


#: Tools that read offsets, with their own arguments.
TOOLS = [["doctor"], ["consumer-groups", "--describe"], ["offset-checker"], ["watch", "--count", "1"]]
