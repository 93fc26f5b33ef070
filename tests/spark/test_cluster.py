"""Executors in separate processes, with the package installed or shipped with the application."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.aliases import Cluster
from helpers.processes import run_module
from helpers.producing import numbers, produce

import zkconsumer

from . import lines

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow]


def archive(folder: Path) -> Path:
    """Create an archive of the package to ship to executors on which it is not installed."""
    made = folder / "packages.tar.gz"
    with tarfile.open(made, "w:gz") as tar:
        tar.add(Path(zkconsumer.__file__).parent, "zkconsumer")
    return made


@pytest.mark.parametrize("shipped", [False, True], ids=["installed", "shipped"])
def test_separate_executor_processes_read_the_same(
    shipped: bool,
    zkconsumer_cluster: Cluster,
    topic: Callable[..., str],
    options: Callable[..., dict[str, str]],
    folder: Path,
) -> None:
    name, admin = topic(partitions=4), zkconsumer_cluster.admin
    for number in range(4):
        produce(admin, name, number, numbers(0, 1000))
    produce(admin, name, 0, [b"the end . is here"])
    conf = {"spark.submit.pyFiles": str(Path(lines.__file__))}
    if shipped:
        conf |= {"spark.archives": f"{archive(folder)}#packages", "spark.executorEnv.PYTHONPATH": "packages"}
    settings = {"folder": str(folder), "options": options(name), "conf": conf}
    done = run_module("spark.drivers.cluster", json.dumps(settings), timeout=200)
    told = json.loads(done.stdout.splitlines()[-1])
    assert sorted((partition, offset) for partition, offset, _, _ in told["seen"]) == sorted(
        [(number, offset) for number in range(4) for offset in range(1000)] + [(0, 1000)]
    )
    folders, processes = ({row[index] for row in told["seen"]} for index in (2, 3))
    assert len(processes) == 2, "both executors must run tasks"
    own = str(Path(zkconsumer.__file__).parent)
    assert all((place == own) != shipped for place in folders), folders
    assert told["ended"]
    assert told["words"].count("the") == 1
    assert "is" not in told["words"]
