"""World: the cluster, the members and the faults of one schedule, and the checks at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from zkconsumer.health import HealthState
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.assignors import assign_range, assign_roundrobin, group_threads_by_topic
from zkconsumer.zookeeper.registry import GroupPaths, Registration, consumer_of

from .applications import Application
from .brokers import Broker, Brokers
from .ensemble import Ensemble
from .jvm_member import JvmMember
from .kafka_server import KafkaServer
from .kernel import Kernel, Process
from .network import Network, install_network
from .plan import Action, MemberKind, MemberPlan, Metadata, Plan
from .records import InvariantError, Records
from .threads import install_kernel
from .zookeeper_server import ZooKeeperServer

#: Virtual seconds within which the group must be complete after the faults have ended.
SETTLE_S = 240.0

_GROUP = "g"
_BROKERS = 3


class World:
    """Everything of a schedule.

    Attributes:
        records: produced, delivered and committed records.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.kernel = Kernel(plan.seed)
        install_kernel(self.kernel)
        self.network = Network()
        install_network(self.network)
        self.ensemble = Ensemble()
        self.servers = [
            ZooKeeperServer(self.ensemble, self.network, (f"10.0.0.{number}", 2181)) for number in range(plan.servers)
        ]
        self.brokers = Brokers(None if plan.metadata is Metadata.KRAFT else self.ensemble)
        self._next_broker = 0
        for _ in range(_BROKERS):
            self.add_broker()
        self.paths = GroupPaths(_GROUP)
        self.records = Records(self.ensemble, self.brokers, self.paths)
        self.members: list[Application | JvmMember] = []
        self.plans: list[MemberPlan] = []
        self.backup = self.ensemble.tree.copy(), dict(self.ensemble.sessions)
        self._processes = 0
        self._produces = True

    # ---- parts ----

    def add_broker(self) -> None:
        """Start a broker with a new id and address."""
        number, self._next_broker = self._next_broker, self._next_broker + 1
        broker = Broker(number, (f"10.0.1.{number}", 9092))
        KafkaServer(self.brokers, broker, self.network)
        self.brokers.add(broker)

    def add_member(self, plan: MemberPlan) -> None:
        """Start a member, with a new process."""
        self._processes += 1
        name = f"{plan.name}-{self._processes}"
        process = Process(name, f"10.0.2.{self._processes}")
        hosts = ",".join(f"{host}:{port}" for host, port in (server.address for server in self.servers))
        self.records.note(f"{name} starts, {plan.kind.value}")
        self.plans.append(plan)
        member: Application | JvmMember
        if plan.kind is MemberKind.JVM:
            named = replace(plan, name=name)
            member = JvmMember(named, process, hosts, self.paths, self.records, self.brokers)
        else:
            member = Application(plan, process, self._properties(plan, name, hosts), self.records)
        self.members.append(member)
        self.records.name_client(name, process)
        member.start()

    def _properties(self, plan: MemberPlan, name: str, hosts: str) -> dict[str, str]:
        properties = {
            "group.id": _GROUP,
            "client.id": name,
            "consumer.id": name,
            "zookeeper.connect": hosts,
            "auto.offset.reset": "smallest",
            "auto.commit.interval.ms": "1000",
            "offsets.storage": self.plan.storage,
            "dual.commit.enabled": "false",
            "partition.assignment.strategy": self.plan.strategy,
            "auto.commit.enable": str(plan.kind in (MemberKind.AUTO, MemberKind.SLOW)).lower(),
            "metadata.max.age.ms": "2000",
        }
        if self.plan.metadata is not Metadata.ZOOKEEPER:
            up = self.brokers.up()
            properties["bootstrap.servers"] = ",".join(f"{host}:{port}" for host, port in (b.address for b in up))
        return properties

    def running(self) -> list[Application | JvmMember]:
        """Return the members that are not dead and were not asked to leave."""
        return [member for member in self.members if not member.process.is_dead and not member.is_leaving]

    # ---- the schedule ----

    def run(self, apply: Callable[[World, Action], object], repair: Callable[[World], object]) -> None:
        """Run the schedule, and check that the group is complete at its end."""
        for topic, partitions in self.plan.topics.items():
            self.brokers.create(topic, partitions)
        self._produce()
        for member in self.plan.members:
            start = self.kernel.random.uniform(0.0, 5.0)
            self.kernel.call_later(start, lambda member=member: self.add_member(member))  # type: ignore[misc]
        for action in self.plan.actions:
            self.kernel.call_at(action.time, lambda action=action: self._apply(apply, action))  # type: ignore[misc]
        self.kernel.call_at(self.plan.lasts_s / 3, self._back_up)
        self.kernel.run(max(self.plan.lasts_s, 6.0))
        repair(self)
        self.records.note("all faults are repaired")
        self.records.is_settling, self._produces = True, False
        if not self.kernel.run(self.kernel.now + SETTLE_S, self._is_complete):
            raise InvariantError(f"not within {SETTLE_S:g} s: {self._describe()}")
        self._stop()

    def _apply(self, apply: Callable[[World, Action], object], action: Action) -> None:
        self.records.note(f"FAULT {action.fault.value}; member {action.member}, {action.duration_s:g} s")
        apply(self, action)

    def _back_up(self) -> None:
        self.backup = self.ensemble.tree.copy(), dict(self.ensemble.sessions)

    def _produce(self) -> None:
        if self._produces:
            random = self.kernel.random
            topic = random.choice(list(self.brokers.topics.values()))
            partition = TopicPartition(topic.name, random.randrange(len(topic.logs)))
            self.records.produce(partition, random.choice((1, 2, 10, 50)))
            self.kernel.call_later(random.expovariate(4.0), self._produce)

    def _stop(self) -> None:
        for member in self.running():
            member.leave()
        if not self.kernel.run(
            self.kernel.now + SETTLE_S, lambda: all(m.has_left or m.process.is_dead for m in self.members)
        ):
            raise InvariantError(f"{[m.process for m in self.members if not m.has_left]} did not end")
        if self.ensemble.tree.children(self.paths.ids):
            raise InvariantError("registrations are left after all members have ended")

    # ---- checks ----

    def expected_owners(self) -> dict[TopicPartition, str]:
        """Return the consumer id of each partition's owner, as the strategy determines it."""
        members = {}
        for member, plan in zip(self.members, self.plans, strict=True):
            if member in self.running():
                members[f"{_GROUP}_{member.process.name}"] = Registration.static(dict.fromkeys(plan.topics, 1))
        partitions = {name: list(range(len(topic.logs))) for name, topic in self.brokers.topics.items()}
        threads = group_threads_by_topic(members, partitions)
        assign = assign_range if self.plan.strategy == "range" else assign_roundrobin
        return {partition: consumer_of(thread) for partition, thread in assign(partitions, threads).items()}

    def owners(self) -> dict[TopicPartition, str]:
        """Return the consumer id of each partition's owner."""
        found = {}
        for topic in self.brokers.topics:
            for number in self.ensemble.tree.children(self.paths.owners(topic)):
                partition = TopicPartition(topic, int(number))
                owner = self.ensemble.tree.find(self.paths.owner(partition)) or b""
                found[partition] = consumer_of(owner.decode())
        return found

    def _unread(self) -> list[TopicPartition]:
        """Return the partitions with records that were not delivered, although they have an owner."""
        expected = self.expected_owners()
        return sorted({partition for partition in self.records.missing.values() if partition in expected})

    def _is_complete(self) -> bool:
        return not self._unread() and self.owners() == self.expected_owners() and self._is_healthy()

    def _is_healthy(self) -> bool:
        applications = [member for member in self.running() if isinstance(member, Application)]
        return all(member.health is HealthState.HEALTHY for member in applications)

    def _describe(self) -> str:
        states = {str(m.process): m.health for m in self.running() if isinstance(m, Application)}
        return f"unread {self._unread()}, owners {self.owners()}, expected {self.expected_owners()}, health {states}"


__all__ = ["World"]
