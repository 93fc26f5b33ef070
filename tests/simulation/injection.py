"""Injection: what each fault of a plan does to the world, and how all of them are repaired."""

from __future__ import annotations

from collections.abc import Callable

from zkconsumer.message import TopicPartition

from .ensemble import Session
from .kernel import Process
from .plan import Action, Fault
from .world import World
from .znode_tree import ZnodeTree

#: Session timeout of the members in seconds: leases that the ensemble has forgotten end after a part of it.
_SESSION_S = 6.0

#: Seconds for which offsets may move back after requests were delayed.
_LATE_REQUESTS_S = 90.0


def apply(world: World, action: Action) -> None:
    """Apply a fault."""
    _FAULTS[action.fault](world, action)


def repair(world: World) -> None:
    """End all faults, except for the loss of data."""
    world.network.join_all()
    for server in world.servers:
        server.lag_s = 0.0
        world.ensemble.connect(server)
    for member in world.members:
        _resume(world, member.process)
    for broker in world.brokers.brokers.values():
        if not broker.is_up:
            world.brokers.start(broker)


def _cut(world: World, action: Action, addresses: list[str]) -> None:
    if world.members:
        client = world.members[action.member % len(world.members)].process.address
        for address in addresses:
            world.network.cut(client, address)
            world.kernel.call_later(action.duration_s, lambda address=address: world.network.join(client, address))  # type: ignore[misc]


def _cut_brokers(world: World, action: Action) -> None:
    world.records.excuse(action.duration_s + _LATE_REQUESTS_S)
    _cut(world, action, [broker.address[0] for broker in world.brokers.up()])


def _zookeeper(world: World) -> list[str]:
    return [server.address[0] for server in world.servers]


def _slow(world: World, action: Action) -> None:
    addresses = _zookeeper(world) + [broker.address[0] for broker in world.brokers.up()]
    address = addresses[action.server % len(addresses)]
    world.records.excuse(_LATE_REQUESTS_S)
    world.network.slow[address] = action.duration_s / 10
    world.kernel.call_later(10.0, lambda: world.network.slow.pop(address, None))


def _suspend(world: World, action: Action) -> None:
    if world.members:
        process = world.members[action.member % len(world.members)].process
        world.kernel.suspend(process)
        world.kernel.call_later(action.duration_s, lambda: _resume(world, process))


def _resume(world: World, process: Process) -> None:
    if process.is_suspended:
        world.records.resumed[process] = world.kernel.now
        world.kernel.resume(process)


def _kill(world: World, action: Action) -> None:
    if world.members:
        member, plan = [(m, p) for m, p in zip(world.members, world.plans, strict=True)][
            action.member % len(world.members)
        ]
        if member in world.running():
            world.kernel.kill(member.process)
            if action.server:
                world.kernel.call_later(action.duration_s, lambda: world.add_member(plan))


def _isolate(world: World, action: Action) -> None:
    if world.plan.servers > 1:
        server = world.servers[action.server]
        world.ensemble.isolate(server)
        world.kernel.call_later(action.duration_s, lambda: world.ensemble.connect(server))


def _lag(world: World, action: Action) -> None:
    server = world.servers[action.server % len(world.servers)]
    server.lag_s = action.duration_s / 10

    def end() -> None:
        server.lag_s = 0.0

    world.kernel.call_later(10.0, end)


def _restart_broker(world: World, action: Action) -> None:
    up = world.brokers.up()
    if len(up) > 1:
        broker = up[action.server % len(up)]
        world.brokers.stop(broker)
        world.kernel.call_later(action.duration_s, lambda: None if broker.is_up else world.brokers.start(broker))


def _replace_broker(world: World, action: Action) -> None:
    up = world.brokers.up()
    world.add_broker()
    broker = up[action.server % len(up)]
    world.brokers.stop(broker)
    del world.brokers.brokers[broker.number]


def _widen(world: World, action: Action) -> None:
    topics = list(world.brokers.topics.values())
    if topics:
        world.brokers.widen(topics[action.server % len(topics)])


def _re_create(world: World, action: Action) -> None:
    names = list(world.plan.topics)
    name = names[action.server % len(names)]
    if name in world.brokers.topics and len(world.brokers.topics) > 1:
        count = len(world.brokers.topics[name].logs)
        world.brokers.delete(name)
        world.records.excuse(action.duration_s + _LATE_REQUESTS_S)
        world.records.forget(name)
        world.kernel.call_later(action.duration_s, lambda: world.brokers.create(name, count))


def _truncate(world: World, action: Action) -> None:
    topics = list(world.brokers.topics)
    name = topics[action.server % len(topics)]
    world.records.excuse(_LATE_REQUESTS_S)
    world.records.lose(world.brokers.truncate(TopicPartition(name, 0)))


def _restore(world: World, action: Action) -> None:
    world.records.excuse(_LATE_REQUESTS_S + action.duration_s)
    _restore_tree(world, *world.backup, action.duration_s)


def _restore_tree(world: World, tree: ZnodeTree, sessions: dict[int, Session], duration_s: float) -> None:
    world.records.unleased_until = world.kernel.now + duration_s + _SESSION_S
    world.ensemble.restore(tree, sessions, duration_s)


def _lose_all(world: World, action: Action) -> None:
    world.records.excuse(_LATE_REQUESTS_S + action.duration_s)
    _restore_tree(world, ZnodeTree(), {}, action.duration_s)


def _join(world: World, action: Action) -> None:
    world.add_member(world.plan.members[action.member])


def _leave(world: World, action: Action) -> None:
    running = world.running()
    if len(running) > 1:
        running[action.member % len(running)].leave()


_FAULTS: dict[Fault, Callable[[World, Action], object]] = {
    Fault.CUT_ZOOKEEPER: lambda world, action: _cut(world, action, _zookeeper(world)),
    Fault.CUT_ONE_ZOOKEEPER: lambda world, action: _cut(
        world, action, [_zookeeper(world)[action.server % len(world.servers)]]
    ),
    Fault.CUT_BROKERS: _cut_brokers,
    Fault.SLOW_SERVER: _slow,
    Fault.SUSPEND: _suspend,
    Fault.KILL: _kill,
    Fault.STOP_ZOOKEEPER: lambda world, action: world.ensemble.stop(action.duration_s),
    Fault.ISOLATE_ZOOKEEPER: _isolate,
    Fault.LAG: _lag,
    Fault.RESTART_BROKER: _restart_broker,
    Fault.MOVE_LEADERS: lambda world, _action: world.brokers.move(),
    Fault.WIDEN: _widen,
    Fault.REPLACE_BROKER: _replace_broker,
    Fault.RE_CREATE_TOPIC: _re_create,
    Fault.TRUNCATE: _truncate,
    Fault.RESTORE_BACKUP: _restore,
    Fault.LOSE_ALL: _lose_all,
    Fault.JOIN: _join,
    Fault.LEAVE: _leave,
}

__all__ = ["apply", "repair"]
