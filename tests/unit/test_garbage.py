"""Unit tests of ``executor/garbage.py``."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from zkconsumer.spark.executor import garbage


@pytest.fixture(autouse=True)
def _unfrozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "_tasks", Counter())
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_modules_are_frozen_by_second_task() -> None:
    garbage.freeze_modules("source")
    garbage.freeze_modules("sink")
    assert gc.get_freeze_count() == 0

    garbage.freeze_modules("source")

    assert gc.get_freeze_count() > 1_000


def test_objects_of_later_tasks_are_not_frozen() -> None:
    for _ in range(2):
        garbage.freeze_modules("source")
    frozen = gc.get_freeze_count()
    objects: list[list[int]] = [[] for _ in range(10_000)]

    garbage.freeze_modules("source")

    assert gc.get_freeze_count() < frozen + len(objects)
