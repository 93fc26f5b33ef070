"""The members of one group under a load, and the numbers that they have read."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

from helpers.producing import Load
from helpers.waiting import wait_for

from .group import Group
from .jvm import ChildConsumer, Maker, jvm_consumer, spark_query

Start = Callable[..., ChildConsumer]


class Neighbours:
    """Starts and stops members, and counts the numbers that they read."""

    def __init__(self, start: Start, group: Group, load: Load) -> None:
        self.group = group
        self.load = load
        self.alive: list[ChildConsumer] = []
        self.all: list[ChildConsumer] = []
        #: How often each number was read by all members together.
        self.read: Counter[int] = Counter()
        #: Name of each member by its consumer id.
        self.names: dict[str, str] = {}
        #: The numbers that each member has read, in order.
        self.read_by: dict[str, list[int]] = {}
        self._start = start
        self._next = itertools.count(1)
        self._first_missing = 0
        self._repeated = 0

    def start(self, make: Maker, **settings: object) -> ChildConsumer:
        """Start a member without waiting until the group is balanced.

        A JVM console consumer starts at the end of a partition without a committed offset, so the call first waits
        until other members have committed offsets of all partitions.
        """
        if self.alive and make is jvm_consumer:
            wait_for(lambda: len(self.group.stored()) == len(self.load.partitions), what="all partitions have offsets")
        name = f"{next(self._next)}-{make.__name__.partition('_')[0]}"
        member = self._start(make, name, self.group.topic, wait=False, **settings)
        self.alive.append(member)
        self.all.append(member)
        self.read_by[name] = []
        if make is spark_query:  # generates a new consumer id at each start
            wait_for(lambda: self._dead() or self._unknown(), 40.0, what=f"{name} has registered")
            assert not self._dead(), self._dead()[0].messages[-2000:]
            self.names[self._unknown()[0]] = name
        else:
            self.names[self.group.consumer_id(name)] = name
        return member

    def join(self, make: Maker, **settings: object) -> ChildConsumer:
        """Start a member and wait until the group is balanced."""
        member = self.start(make, **settings)
        self.wait_until_balanced()
        return member

    def kill(self, member: ChildConsumer) -> None:
        """Kill a member with SIGKILL."""
        member.kill()
        self.alive.remove(member)

    def leave(self, member: ChildConsumer) -> None:
        """Stop a member with SIGTERM."""
        member.stop()
        self.alive.remove(member)

    def wait_until_balanced(self, timeout: float = 30.0) -> dict[str, list[int]]:
        """Wait until the running members own their assigned partitions; return these partitions by member name."""
        alive = {member.name for member in self.alive}
        wanted = {consumer_id for consumer_id, name in self.names.items() if name in alive}
        try:
            wait_for(lambda: self.group.is_balanced(wanted) or self._dead(), timeout)
        except AssertionError:
            raise AssertionError(f"not balanced within {timeout:g} s, expected {wanted}: {self.group}") from None
        assert not self._dead(), self._dead()[0].messages[-2000:]
        return {self.names[consumer_id]: partitions for consumer_id, partitions in self.group.shares().items()}

    def wait_until_committed(self, timeout: float = 30.0) -> int:
        """Wait until all written numbers are read and committed; return how many were repeated since the last call."""
        end = self.load.written
        self.wait_until_read(end, timeout)
        counts = Counter(self.load.partition_of(number).partition for number in range(end))

        def lagging() -> dict[int, int]:
            stored = self.group.stored()
            return {p: stored.get(p, -1) for p, count in counts.items() if stored.get(p, -1) < count}

        wait_for(lambda: not lagging(), timeout, what=f"offsets of at least {dict(counts)} are committed")
        self.record_reads()
        repeated = self.read.total() - len(self.read)
        before, self._repeated = self._repeated, repeated
        return repeated - before

    def wait_until_read(self, end: int, timeout: float = 30.0) -> None:
        """Wait until the members together have read each number before ``end``."""

        def all_is_read() -> bool:
            self.record_reads()
            while self._first_missing in self.read:
                self._first_missing += 1
            return self._first_missing >= end

        try:
            wait_for(all_is_read, timeout)
        except AssertionError:
            missing = [number for number in range(end) if number not in self.read]
            partitions = dict(Counter(self.load.partition_of(number).partition for number in missing))
            raise AssertionError(
                f"{len(missing)} of {end} numbers are not read, by partition {partitions}: {missing[:20]}; {self.group}"
            ) from None

    def record_reads(self) -> None:
        """Record the numbers that the members have read."""
        for member in self.all:
            numbers = member.new_numbers()
            self.read.update(numbers)
            self.read_by[member.name] += numbers

    @property
    def failures(self) -> list[str]:
        """Return the failures that members have reported."""
        return [line for member in self.all for line in member.failures]

    def _unknown(self) -> list[str]:
        return sorted(self.group.registrations().keys() - self.names.keys())

    def _dead(self) -> list[ChildConsumer]:
        return [member for member in self.alive if not member.is_running]
