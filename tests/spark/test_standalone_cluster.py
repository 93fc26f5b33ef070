"""A standalone cluster of a master and workers in separate processes, whose Python does not have the package."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster
from helpers.producing import produce
from helpers.waiting import wait_for

from . import lines
from .queries import runs_topology
from .standalone_cluster import StandaloneCluster, running

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]

TESTS = Path(__file__).parent.parent
SITE_PACKAGES = Path(sysconfig.get_paths()["purelib"])

#: What Spark's Python data sources require, except pyspark itself.
OF_SPARK = re.compile(r"(pyarrow|numpy|pandas|dateutil|six|tzdata|pytz)\b")


def bare_python(folder: Path) -> Path:
    """Create an environment that has what Spark requires, but not the package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = (folder / "lib").glob("python*/site-packages")
    for found in SITE_PACKAGES.iterdir():
        if OF_SPARK.match(found.name):
            (packages / found.name).symlink_to(found)
    python = folder / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    lacks = subprocess.run(
        [python, "-c", "import zkconsumer"], env=environment, cwd=folder, capture_output=True, check=False
    )
    assert b"No module named 'zkconsumer'" in lacks.stderr
    return python


def running_driver(
    module: str, settings: dict[str, Any], folder: Path
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Run a module of ``drivers`` with a Python that has the package; the workers do not have it."""
    paths = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), str(TESTS.parent), str(SITE_PACKAGES)]
    return running(
        [str(bare_python(folder / "python")), "-m", f"spark.drivers.{module}", json.dumps(settings)],
        folder / "driver.log",
        cwd=TESTS,
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def test_standalone_cluster_reads_with_packed_packages(
    zkconsumer_cluster: Cluster, topic: Callable[..., str], options: Callable[..., dict[str, str]], folder: Path
) -> None:
    name, admin = topic(partitions=4), zkconsumer_cluster.admin
    archive, seen = folder / "packages.tar.gz", folder / "seen"
    subprocess.run([sys.executable, "-m", "zkconsumer", "pack-for-spark", str(archive)], check=True)
    conf = {
        "spark.archives": f"{archive}#packages",
        "spark.executorEnv.PYTHONPATH": "packages",
        "spark.executor.memory": "512m",
        "spark.submit.pyFiles": str(Path(lines.__file__)),
    }
    seen.touch()

    def batches() -> list[Any]:
        return [json.loads(line) for line in seen.read_text().splitlines()]

    def words() -> list[str]:
        return sorted(word for _, found, _, _ in batches() for word in found)

    with contextlib.ExitStack() as stack:
        spark = StandaloneCluster(folder, stack)
        spark.add_worker("first", 2)
        settings = {
            "folder": str(folder),
            "master": spark.master,
            "conf": conf,
            "seen": str(seen),
            "checkpoint": str(folder / "checkpoint"),
            "options": options(name, decoder="lines:Words", corrupt_record_policy="skip"),
        }
        driver = stack.enter_context(running_driver("standalone", settings, folder))

        def add_batch(number: int) -> None:
            before = len(words())
            for partition in range(4):
                produce(admin, name, partition, [b"w%d" % number])
            wait_for(lambda: len(words()) == before + 4 or driver.poll(), 120, what=f"batch {number}")
            assert driver.poll() is None, spark.log("driver")[-4000:]

        produce(admin, name, 0, [b"half !"])
        add_batch(0)
        add_batch(1)
        assert len(set(batches()[-1][2])) == 2, "there are two cores"
        spark.add_worker("second", 2)
        deadline = time.monotonic() + 120
        while len(set(batches()[-1][2])) < 4:  # there are four cores now
            assert time.monotonic() < deadline
            add_batch(len(batches()))
        folders = {path for _, _, _, found in batches() for path in found}
        assert all(str(spark.folder) in path and "packages" in path for path in folders), folders
        assert "undecodable_records_skipped" in spark.executor_output
        assert "records_skipped" in spark.log("driver")
        assert driver.stdin is not None
        driver.stdin.close()
        assert driver.wait(60) == 0, spark.log("driver")[-4000:]


@runs_topology
def test_topology_runs_with_packed_packages(
    zkconsumer_cluster: Cluster, topic: Callable[..., str], group: str, folder: Path
) -> None:
    from .streams_output import Output

    source, sink, archive = topic(partitions=2), topic(partitions=1), folder / "packages.tar.gz"
    include = ["--include", "confluent-kafka", "--include", "protobuf"]
    subprocess.run([sys.executable, "-m", "zkconsumer", "pack-for-spark", str(archive), *include], check=True)
    conf = {
        "spark.archives": f"{archive}#packages",
        "spark.executorEnv.PYTHONPATH": "packages",
        "spark.executor.memory": "512m",
        "spark.submit.pyFiles": str(Path(__file__).parent / "on_path" / "streams_topologies.py"),
    }
    for partition in range(2):
        produce(zkconsumer_cluster.admin, source, partition, [b"a", b"b", b"a"])
    output = Output(zkconsumer_cluster, sink)
    with contextlib.ExitStack() as stack:
        stack.callback(output.close)
        spark = StandaloneCluster(folder, stack)
        for name in ("first", "second"):
            spark.add_worker(name, 1)
        settings = {
            "folder": str(folder),
            "master": spark.master,
            "conf": conf,
            "checkpoint": str(folder / "checkpoint"),
            "topology": "counting",
            "source": source,
            "sink": sink,
            "group": group,
            "properties": {"bootstrap.servers": zkconsumer_cluster.bootstrap_servers},
            "max_restarts": 0,
        }
        driver = stack.enter_context(running_driver("streams", settings, folder))

        def has_all() -> bool:
            assert driver.poll() is None, spark.log("driver")[-4000:]
            return len(counts()) == 3 * 2

        def counts() -> list[tuple[bytes, int]]:
            return sorted((key, int.from_bytes(value)) for key, value in output.read() if key != b"total")

        wait_for(has_all, 240, what="all records are counted")
        assert counts() == [(b"a", 1), (b"a", 1), (b"a", 2), (b"a", 2), (b"b", 1), (b"b", 1)]
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(60) == 0, spark.log("driver")[-4000:]
