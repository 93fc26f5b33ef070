"""Ids of topics, which distinguish a topic from a deleted one of the same name.

An id contains ``zk-<czxid>``, the id of the transaction that created the topic's znode, ``id-<topic id>``, which
brokers assign since Kafka 2.8, or both, separated by a comma. It is empty if neither is known.
"""

from __future__ import annotations


def is_same_topic(before: str, now: str) -> bool:
    """Return whether two ids can be those of one topic.

    A member that connects through ZooKeeper and one that connects through ``bootstrap.servers`` find different parts.
    Therefore, only parts that both ids have are compared. If both have the zxid, it decides, because the topic id in a
    znode may be lost and assigned again: Kafka before 2.8 writes topic znodes without it. Without a common part the
    topic counts as the same.
    """
    old_parts, new_parts = _parts(before), _parts(now)
    common = ["zk"] if "zk" in old_parts.keys() & new_parts.keys() else old_parts.keys() & new_parts.keys()
    return all(old_parts[kind] == new_parts[kind] for kind in common)


def created_zxid(topic_id: str) -> int | None:
    """Return the id of the transaction that created the topic's znode; None if the id does not contain it."""
    part = _parts(topic_id).get("zk")
    return None if part is None else int(part)


def _parts(topic_id: str) -> dict[str, str]:
    return {kind: value for kind, _, value in (part.partition("-") for part in topic_id.split(",") if part)}
