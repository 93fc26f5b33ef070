"""Topic ids, which distinguish a topic from a deleted topic with the same name.

An id contains ``zk-<czxid>`` (the id of the transaction that created the topic's znode), ``id-<topic id>`` (assigned by
brokers since Kafka 2.8), or both, separated by a comma. It is empty if neither is known.
"""

from __future__ import annotations


def is_same_topic(before: str, now: str) -> bool:
    """Return whether two ids may identify the same topic.

    Only the parts present in both ids are compared, because ZooKeeper and the brokers report different parts. The zxid
    takes precedence, because Kafka before 2.8 drops the topic id when it rewrites the topic's znode, and a new id is
    assigned later. If the ids share no part, the topics are assumed to be the same.

    See docs/decisions/14-compare-common-parts-of-topic-ids.rst.
    """
    old_parts, new_parts = _parts(before), _parts(now)
    common = ["zk"] if "zk" in old_parts.keys() & new_parts.keys() else old_parts.keys() & new_parts.keys()
    return all(old_parts[kind] == new_parts[kind] for kind in common)


def created_zxid(topic_id: str) -> int | None:
    """Return the ``czxid`` of the topic's znode; None if ``topic_id`` does not contain it."""
    part = _parts(topic_id).get("zk")
    return None if part is None else int(part)


def _parts(topic_id: str) -> dict[str, str]:
    return {kind: value for kind, _, value in (part.partition("-") for part in topic_id.split(",") if part)}
