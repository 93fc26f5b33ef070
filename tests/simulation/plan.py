"""Plan: what happens in a schedule. It is generated from a seed, and can be shortened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random


class MemberKind(Enum):
    """What the application of a member does."""

    AUTO = "commits by itself"
    MANUAL = "commits after some messages"
    TIMER = "commits in another thread"
    SLOW = "takes long for each message"
    JVM = "a scripted JVM member"


class Metadata(Enum):
    """Where members look up topics and brokers."""

    ZOOKEEPER = "in ZooKeeper"
    BOOTSTRAP = "at bootstrap servers, which are registered in ZooKeeper"
    KRAFT = "at bootstrap servers in KRaft mode"


class Fault(Enum):
    """A fault, or a change of the cluster."""

    CUT_ZOOKEEPER = "a member cannot reach ZooKeeper"
    CUT_ONE_ZOOKEEPER = "a member cannot reach one ZooKeeper server"
    CUT_BROKERS = "a member cannot reach the brokers"
    SLOW_SERVER = "a server responds slowly"
    SUSPEND = "a member is suspended"
    KILL = "a member is killed"
    STOP_ZOOKEEPER = "the ensemble loses its quorum"
    ISOLATE_ZOOKEEPER = "a server cannot reach the leader of the ensemble"
    LAG = "a server applies transactions late"
    RESTART_BROKER = "a broker is restarted"
    MOVE_LEADERS = "leaders and the coordinator move"
    WIDEN = "a topic gets a partition"
    REPLACE_BROKER = "a broker is replaced by another one with a new id and address"
    RE_CREATE_TOPIC = "a topic is deleted and created again"
    TRUNCATE = "a partition loses its last records"
    RESTORE_BACKUP = "the ensemble comes back from an older backup"
    LOSE_ALL = "the ensemble comes back empty"
    JOIN = "a member starts"
    LEAVE = "a member ends"


@dataclass(frozen=True)
class MemberPlan:
    """A member; ``topics`` are what it subscribes to."""

    name: str
    kind: MemberKind
    topics: tuple[str, ...]


@dataclass(frozen=True)
class Action:
    """A fault at a time; ``member``, ``server`` and ``duration_s`` are used by some of them."""

    time: float
    fault: Fault
    member: int
    server: int
    duration_s: float


@dataclass(frozen=True)
class Plan:
    """A schedule.

    Attributes:
        seed: seed of the random numbers during the schedule.
        topics: number of partitions by topic.
        actions: what happens, in order of time.
        lasts_s: virtual seconds until the faults are repaired.
    """

    seed: int
    metadata: Metadata
    storage: str
    strategy: str
    topics: dict[str, int]
    members: tuple[MemberPlan, ...]
    actions: tuple[Action, ...]
    servers: int
    lasts_s: float


#: Faults that a group does not survive if its brokers are registered in the same ensemble.
_KRAFT_ONLY = {Fault.RESTORE_BACKUP, Fault.LOSE_ALL}


def generate(seed: int) -> Plan:
    """Return the plan of a seed."""
    random = Random(seed)
    metadata = random.choice(list(Metadata))
    names = ["a", "b", "c"][: random.randint(1, 3)]
    topics = {name: random.randint(1, 5) for name in names}
    kinds = [kind for kind in MemberKind if kind is not MemberKind.JVM or metadata is Metadata.ZOOKEEPER]
    members = tuple(
        MemberPlan(f"m{number}", random.choice(kinds), tuple(random.sample(names, random.randint(1, len(names)))))
        for number in range(random.randint(2, 6))
    )
    faults = [fault for fault in Fault if metadata is Metadata.KRAFT or fault not in _KRAFT_ONLY]
    favourites = random.sample(faults, 4)  # a schedule with few kinds of faults has more of each
    lasts_s = random.choice((20.0, 40.0, 90.0))
    actions = [
        Action(
            random.uniform(0.0, lasts_s),
            random.choice(favourites if random.random() < 0.7 else faults),
            random.randrange(len(members)),
            random.randrange(3),
            random.choice((0.05, 0.5, 2.0, 5.0, 10.0, 20.0)),
        )
        for _ in range(random.randint(0, 12))
    ]
    has_jvm = any(member.kind is MemberKind.JVM for member in members)
    return Plan(
        seed,
        metadata,
        "zookeeper" if has_jvm else random.choice(("zookeeper", "kafka")),
        "range" if has_jvm else random.choice(("range", "roundrobin")),
        topics,
        members,
        tuple(sorted(actions, key=lambda action: action.time)),
        random.choice((1, 3)),
        lasts_s,
    )


__all__ = ["Action", "Fault", "MemberKind", "MemberPlan", "Metadata", "Plan", "generate"]
