"""A registry of open processors and stores, which prevents two tasks from sharing the same object.

The application defines the objects: they may be unhashable or compare equal, so they are looked up by identity.
``Processor`` and ``StateStore`` support weak references, and subclasses cannot disable them. Tasks in all threads use
this registry; each change is a single dictionary operation.
"""

from __future__ import annotations

from weakref import ref

#: Weak reference and task id by object id. A deleted object is removed before its id can be reused.
_owners: dict[int, tuple[ref[object], str]] = {}


def claim(opened: object, task_id: str) -> str | None:
    """Make the task the owner of ``opened`` and return None, or return the current owner if there is one."""
    key = id(opened)
    entry = (ref(opened, lambda _: _owners.pop(key, None)), task_id)
    found = _owners.setdefault(key, entry)
    return None if found is entry else found[1]


def release(opened: object) -> None:
    """Release ``opened``, so that another task can open it."""
    _owners.pop(id(opened), None)
