"""Exempts a worker's modules from garbage collection, which Spark runs after each task."""

from __future__ import annotations

import gc
from collections import Counter

#: Number of tasks started in this process, by kind. The first task of a kind loads its modules.
_tasks: Counter[str] = Counter()


def freeze_modules(kind: str) -> None:
    """Exempt all existing objects, which are mostly modules and classes, from garbage collection.

    Call it at the start of each task. It takes effect once per kind, in the second task.

    Args:
        kind: kind of the task. Each kind loads different modules.
    """
    _tasks[kind] += 1
    if _tasks[kind] == 2:
        gc.collect()
        gc.freeze()
