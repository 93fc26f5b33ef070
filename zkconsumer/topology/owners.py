"""Owner tasks of open processors and stores, so that two tasks cannot share one.

The objects belong to the application: they may be unhashable, or equal to each other, so they are found by identity.
``Processor`` and ``StateStore`` have weak references, which a subclass cannot remove. Tasks of all threads share the
owners; each change is one operation of a dictionary.
"""

from __future__ import annotations

from weakref import ref

#: Object and task by id of the object. A deleted object is removed before its id can be used again.
_owners: dict[int, tuple[ref[object], str]] = {}


def claim(opened: object, task_id: str) -> str | None:
    """Make a task the owner of an object that has none; otherwise return its owner."""
    key = id(opened)
    entry = (ref(opened, lambda _: _owners.pop(key, None)), task_id)
    found = _owners.setdefault(key, entry)
    return None if found is entry else found[1]


def release(opened: object) -> None:
    """Release an object, which another task can then open."""
    _owners.pop(id(opened), None)
