"""Members that are cut off from their servers while another member waits for their partitions.

The victims are plain consumers behind proxies. Each has a group of its own, in which a rival without fetchers takes its
partition over. The time of each delivery is compared with the time at which the owner znode names the rival.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from helpers.group_members import IdleHandler
from helpers.waiting import TIMEOUT_S, wait_for
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, TopicPartition, create_consumer
from zkconsumer.rebalance.member import GroupMember
from zkconsumer.rebalance.member_factory import create_member
from zkconsumer.zookeeper.registry import GroupPaths, Registration

#: Seconds for which deliveries are still recorded after the last takeover.
_OBSERVED_S = 2.0


class Victim:
    """A plain consumer that records when each message was handed out.

    Args:
        pause: processing time of the application per message, in seconds.
    """

    def __init__(self, config: ConsumerConfig, topic: str, *, pause: float = 0.0) -> None:
        self.group = config.group_id
        self.delivered_at: list[float] = []
        self.connector = create_consumer(config)
        [self._stream] = self.connector.create_message_streams({topic: 1})[topic]
        self._pause = pause
        self._thread = threading.Thread(target=self._read, name=f"test-victim-{self.group}", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for _ in self._stream:
            self.delivered_at.append(time.monotonic())
            if self._pause:
                time.sleep(self._pause)  # simulates a slow application

    def close(self) -> None:
        """Leave the group."""
        self.connector.shutdown()
        self._thread.join(TIMEOUT_S)


@dataclass(frozen=True)
class Takeover:
    """What happened in one group.

    Attributes:
        margin: seconds between the last delivery before the takeover and the takeover.
        after: number of messages that were handed out after the takeover.
        outage: seconds between the cut and the takeover.
    """

    margin: float
    after: int
    outage: float


@dataclass
class CutOff:
    """Groups of a victim and a rival; ``with`` closes them.

    Args:
        connect: ``zookeeper.connect`` without a proxy.
        topic: a topic with two partitions; the rival owns the second one from the beginning.
        rival_config: returns the configuration of the rival of a group.
    """

    connect: str
    topic: str
    rival_config: Callable[..., ConsumerConfig]
    victims: list[Victim] = field(default_factory=list)
    _rivals: list[GroupMember] = field(default_factory=list)

    def __enter__(self) -> CutOff:
        self._zk = KazooClient(self.connect, timeout=60)
        self._zk.start(timeout=TIMEOUT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for rival in self._rivals:
            rival.close()
        for victim in self.victims:
            victim.close()
        self._zk.stop()
        self._zk.close()

    def add(self, config: ConsumerConfig, *, pause: float = 0.0) -> None:
        """Start a victim and its rival; both own one partition when it returns."""
        victim = Victim(config, self.topic, pause=pause)
        self.victims.append(victim)
        self.add_rival(victim.group)
        wait_for(lambda: len(victim.connector.assignment) == 1, what="the victim owns one partition")

    def add_many(self, count: int, group: str, config: Callable[..., ConsumerConfig], *, pause: float = 0.0) -> None:
        """Start ``count`` groups whose names begin with ``group``, and wait until all victims have read messages.

        Args:
            config: returns the configuration of the victim of a group.
        """
        for number in range(count):
            self.add(config(group_id=f"{group}-{number}", consumer_id="a"), pause=pause)
        self.wait_for_deliveries()

    def add_rival(self, group: str) -> None:
        """Start a rival whose consumer id sorts after that of a victim ``a``."""
        rival = create_member(
            self.rival_config(group_id=group, consumer_id="b"),
            Registration.static({self.topic: 1}),
            IdleHandler(),
            auto_commit=False,
        )
        self._rivals.append(rival)
        rival.start()

    def wait_for_deliveries(self, count: int = 20) -> None:
        """Wait until each victim has received ``count`` more messages."""
        least = [len(victim.delivered_at) + count for victim in self.victims]
        wait_for(
            lambda: all(len(one.delivered_at) >= n for one, n in zip(self.victims, least, strict=True)),
            what=f"{count} more messages for each victim",
        )

    def takeovers(self, cut: Callable[[], object], timeout: float) -> list[Takeover]:
        """Cut the victims off, and return what happened in each group."""
        cut()
        cut_at = time.monotonic()
        taken_at = self.times_of_takeover([victim.group for victim in self.victims], timeout)
        end = time.monotonic() + _OBSERVED_S
        wait_for(lambda: time.monotonic() > end, what="deliveries after the takeovers were recorded")
        return [
            takeover(list(victim.delivered_at), at, cut_at) for victim, at in zip(self.victims, taken_at, strict=True)
        ]

    def times_of_takeover(self, groups: Sequence[str], timeout: float) -> list[float]:
        """Return for each group the time at which the znode of partition 0 was first seen to name the rival."""
        partition = TopicPartition(self.topic, 0)
        paths = {group: GroupPaths(group).owner(partition) for group in groups}
        seen: dict[str, float] = {}

        def look() -> bool:
            results = {group: self._zk.get_async(path) for group, path in paths.items() if group not in seen}
            for group, result in results.items():
                result.wait()
                if result.successful() and result.get()[0].startswith(f"{group}_b-".encode()):
                    seen[group] = time.monotonic()
            return len(seen) == len(paths)

        wait_for(look, timeout, what=f"the rivals own partition 0 of all groups; missing: {paths.keys() - seen.keys()}")
        return [seen[group] for group in groups]


def takeover(delivered_at: Sequence[float], taken_at: float, cut_at: float) -> Takeover:
    """Return what happened in a group, from the times of deliveries, of the takeover and of the cut."""
    before = [at for at in delivered_at if at <= taken_at]
    return Takeover(taken_at - max(before), len(delivered_at) - len(before), taken_at - cut_at)


def describe(name: str, takeovers: Sequence[Takeover]) -> str:
    """Return a line with the figures of all groups."""
    return (
        f"{name}: {len(takeovers)} runs, {sum(one.after for one in takeovers)} messages after the takeover, margin "
        f"{min(one.margin for one in takeovers):.2f} to {max(one.margin for one in takeovers):.2f} s, takeover "
        f"{min(one.outage for one in takeovers):.1f} to {max(one.outage for one in takeovers):.1f} s after the cut"
    )
