"""Changes that ``StreamsApp(allow=...)`` permits when it resumes from a checkpoint."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Any

#: Declaration of a sub-topology; see ``Subtopology.fingerprint``.
Declaration = Mapping[str, Any]

#: Fields of a node declaration that contain the name of a function or class.
_CODE = (
    "supplier",
    "key_serializer",
    "value_serializer",
    "key_deserializer",
    "value_deserializer",
    "timestamp_extractor",
    "partitioner",
    "extractor",
)


class AllowedChange(enum.Enum):
    """A change of the topology or of the committed offsets since the checkpoint was written."""

    #: A sub-topology without stores was added after all existing sub-topologies.
    ADDED_SUBTOPOLOGY = "added sub-topology"
    #: A sub-topology with a higher number than all remaining ones was removed. Its state stays in the checkpoint.
    REMOVED_SUBTOPOLOGY = "removed sub-topology"
    #: A store was added. It is empty, unless it was removed before.
    ADDED_STORE = "added store"
    #: A store was removed. Its entries remain in the checkpoint, and are reused if the store is declared again.
    REMOVED_STORE = "removed store"
    #: The ``caching`` or ``logging`` setting of a store was changed.
    STORE_SETTINGS = "store settings"
    #: Functions and classes of nodes were renamed or replaced, for example a processor or serializer.
    CODE = "code"
    #: A processor or sink was renamed. It must not have active schedules or values stored with ``remember``.
    RENAMED_NODE = "renamed node"
    #: A sink writes to another topic, or sinks were added or removed.
    SINKS = "sinks"
    #: With ``exactly_once_v2``, committed offsets expired or were deleted. The unfinished batch is repeated, although
    #: its output may have been written already.
    MARKERS_LOST = "markers lost"


def normalize(
    before: Mapping[str, Declaration], now: Mapping[str, Declaration], allowed: Collection[AllowedChange]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the declarations of two topologies without the allowed differences.

    Args:
        before: declarations in the checkpoint, by sub-topology number.
        now: current declarations, by sub-topology number.
        allowed: the allowed changes.
    """
    old, new = dict(before), dict(now)
    if AllowedChange.ADDED_SUBTOPOLOGY in allowed:
        new = {number: one for number, one in new.items() if number in old or one["stores"]}
    if AllowedChange.REMOVED_SUBTOPOLOGY in allowed:
        old = {number: one for number, one in old.items() if number in new}
    for number in old.keys() & new.keys():
        of_both = set(allowed)
        if _has_moved_names(old[number], new[number]):  # no node may take over another node's state
            of_both.discard(AllowedChange.RENAMED_NODE)
        old[number], new[number] = (_simplify(one, of_both) for one in (old[number], new[number]))
        names = [{store["name"] for store in one["stores"]} for one in (old[number], new[number])]
        if AllowedChange.REMOVED_STORE in allowed:
            old[number] = _remove_stores(old[number], names[0] - names[1])
        if AllowedChange.ADDED_STORE in allowed:
            new[number] = _remove_stores(new[number], names[1] - names[0])
    return old, new


def _has_moved_names(before: Declaration, now: Declaration) -> bool:
    """Return whether a node has a name that another node had before."""
    old, new = ([node["name"] for node in one["nodes"]] for one in (before, now))
    return any(name in old and old.index(name) != index for index, name in enumerate(new))


def _simplify(declaration: Declaration, allowed: Collection[AllowedChange]) -> dict[str, Any]:
    nodes, stores = ([dict(one) for one in declaration[name]] for name in ("nodes", "stores"))
    if AllowedChange.SINKS in allowed:
        nodes = [node for node in nodes if node["type"] != "SinkNode"]
    if AllowedChange.CODE in allowed:
        nodes = [{name: value for name, value in node.items() if name not in _CODE} for node in nodes]
    if AllowedChange.RENAMED_NODE in allowed:
        numbers = {node["name"]: number for number, node in enumerate(nodes)}
        for node in nodes:
            node["name"], node["parents"] = numbers[node["name"]], [numbers[name] for name in node["parents"]]
    if AllowedChange.STORE_SETTINGS in allowed:
        stores = [{name: value for name, value in one.items() if name not in ("caching", "logging")} for one in stores]
    return {**declaration, "nodes": nodes, "stores": stores}


def _remove_stores(declaration: Declaration, names: Collection[str]) -> dict[str, Any]:
    nodes = [dict(node) for node in declaration["nodes"]]
    for node in nodes:
        if "stores" in node:
            node["stores"] = [name for name in node["stores"] if name not in names]
    return {**declaration, "nodes": nodes, "stores": [one for one in declaration["stores"] if one["name"] not in names]}
