"""Read and write the znodes of groups."""

from __future__ import annotations

import json

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError


def owners(zk: KazooClient, group: str, topic: str) -> dict[int, str]:
    """Return the content of the owner znode (a thread id) of each partition that has one."""
    return _numbered(zk, f"/consumers/{group}/owners/{topic}")


def stored(zk: KazooClient, group: str, topic: str) -> dict[int, str]:
    """Return the content of the offset znode of each partition that has one."""
    return _numbered(zk, f"/consumers/{group}/offsets/{topic}")


def members(zk: KazooClient, group: str) -> list[str]:
    """Return the registered consumer ids."""
    path = f"/consumers/{group}/ids"
    return sorted(zk.get_children(path)) if zk.exists(path) else []


def set_offsets(zk: KazooClient, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Write offset znodes of a group."""
    for partition, offset in offsets.items():
        path = f"/consumers/{group}/offsets/{topic}/{partition}"
        zk.ensure_path(path)
        zk.set(path, b"%d" % offset)


def registered(zk: KazooClient, group: str, member: str, topics: dict[str, int], pattern: str = "static") -> None:
    """Register a group member that consists of its znode."""
    content = json.dumps({"version": 1, "subscription": topics, "pattern": pattern, "timestamp": "1"})
    zk.create(f"/consumers/{group}/ids/{group}_{member}", content.encode(), ephemeral=True, makepath=True)


def _numbered(zk: KazooClient, path: str) -> dict[int, str]:
    found = {}
    try:
        for name in zk.get_children(path):
            try:
                found[int(name)] = zk.get(f"{path}/{name}")[0].decode()
            except NoNodeError:
                continue
    except NoNodeError:
        pass
    return dict(sorted(found.items()))
