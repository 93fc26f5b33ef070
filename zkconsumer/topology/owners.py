"""Which task has opened a processor or store, so that two tasks cannot share one.

The objects are the application's: they may be unhashable, or equal to each other, so they are found by identity.
``Processor`` and ``StateStore`` have weak references, which a subclass cannot remove. Tasks of all threads share the
owners; each change is one operation of a dictionary.
"""

from __future__ import annotations

from weakref import ref

#: Object and task by id of the object. An object that is deleted leaves, before its id can be used again.
_owners: dict[int, tuple[ref[object], str]] = {}


def claim(opened: object, task_id: str) -> str | None:
    """Make a task the owner of an object that has none; otherwise return the task that owns it."""
    key = id(opened)
    entry = (ref(opened, lambda _: _owners.pop(key, None)), task_id)
    found = _owners.setdefault(key, entry)
    return None if found is entry else found[1]


def release(opened: object) -> None:
    """Let another task open the object."""
    _owners.pop(id(opened), None)
