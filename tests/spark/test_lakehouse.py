"""The programs that write to lakehouse tables lose and repeat nothing when they are killed within a batch.

Each program runs on the newest Spark for which its table format has a release; see ``docs/lakehouse.rst``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from json import loads
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers.aliases import Cluster
from helpers.processes import list_session
from helpers.waiting import wait_for

from zkconsumer import TopicPartition
from zkconsumer.devcluster.jars import resolve
from zkconsumer.devcluster.java import java_home
from zkconsumer.devcluster.load import batch
from zkconsumer.spark.compat import HAS_ADMISSION_CONTROL, VERSION

from .queries import kill

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: The settings of small tests: each of Delta's state reads has 50 tasks by default.
SETTINGS = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "700m",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
DAY_MS = 86_400_000

#: Maximum number of times that a program is killed until both kinds of replay have occurred.
MAX_KILLS = 10


class Program(NamedTuple):
    """A program that appends the records of a topic to tables.

    Attributes:
        command: command and arguments; ``{zookeeper}`` and ``{topic}`` are replaced.
        written: pattern of the files that appear when the first table contains a batch.
        checkpoint: pattern of checkpoint directories.
        tables: format and location of each table, as in ``read_table``.
        jars: Maven coordinate of the jars of the table format.
        settings: Spark settings for reading the tables.
    """

    command: tuple[str, ...]
    written: str
    checkpoint: str
    tables: tuple[tuple[str, str], ...]
    jars: str | None = None
    settings: dict[str, str] | None = None


def example(name: str) -> tuple[str, ...]:
    """Return the command of an example that writes to the directory ``target``."""
    return sys.executable, str(EXAMPLES / name), "{zookeeper}", "{topic}", "target"


def only_on(version: tuple[int, int]) -> pytest.MarkDecorator:
    """Return the mark of a test that runs on one version of Spark."""
    return pytest.mark.skipif(version != VERSION, reason="the test runs on Spark {}.{}".format(*version))


def delta(name: str, *tables: str) -> Program:
    """Return an example that writes to Delta tables; the first one is ``orders``."""
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    locations = tuple(("delta", f"target/{table}") for table in ("orders", *tables))
    jars = "io.delta:delta-spark_4.2_2.13:4.4.0"
    return Program(example(name), "orders/_delta_log/*.json", "checkpoint", locations, jars, settings)


PARQUET = Program(example("spark_parquet.py"), "data/*/_SUCCESS", "checkpoint", (("parquet", "target/data"),))
ICEBERG = Program(
    example("spark_iceberg.py"),
    "warehouse/shop/orders/metadata/v[2-9]*.metadata.json",
    "checkpoint",
    (("table", "lake.shop.orders"),),
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": "target/warehouse",
    },
)
PIPELINE = Program(
    ("spark-pipelines", "run", "--conf", "spark.sql.catalogImplementation=hive"),
    "spark-warehouse/orders/_spark_metadata/[0-9]*",
    "storage/_checkpoints/*/*/orders/orders/0",
    (("parquet", "target/spark-warehouse/orders"),),
)
PROGRAMS = [
    pytest.param(PARQUET, id="parquet"),
    pytest.param(delta("spark_delta.py"), id="delta", marks=only_on((4, 2))),
    pytest.param(delta("spark_delta_batches.py", "rejected"), id="delta-batches", marks=only_on((4, 2))),
    pytest.param(ICEBERG, id="iceberg", marks=only_on((4, 1))),
    # later versions report an error after each run with a Python source
    pytest.param(PIPELINE, id="pipeline", marks=only_on((4, 1))),
]


class Batches(NamedTuple):
    """Numbers of batches.

    Attributes:
        planned: batches whose offsets are in the checkpoint.
        written: batches that the first table contains.
        finished: batches that the checkpoint contains as finished.
    """

    planned: int
    written: int
    finished: int

    @property
    def replays_written_batch(self) -> bool:
        """Whether a restart replays a batch that the table contains."""
        return self.planned > self.finished and self.written == self.planned

    @property
    def replays_unwritten_batch(self) -> bool:
        """Whether a restart replays a batch that the table does not contain."""
        return self.planned > self.finished and self.written < self.planned


class Runner:
    """Runs a program in a directory, and kills it.

    Args:
        program: the program.
        folder: current directory of the program; tables are in ``target``.
        cluster: servers.
        topic: topic to read.
    """

    def __init__(self, program: Program, folder: Path, cluster: Cluster, topic: str) -> None:
        self._program, self._target = program, folder / "target"
        is_pipeline = program is PIPELINE
        if is_pipeline:
            create_pipeline(self._target, cluster.zookeeper_connect, topic)
        self._place = self._target if is_pipeline else folder
        words = {"zookeeper": cluster.zookeeper_connect, "topic": topic}
        self._command = [word.format(**words) for word in program.command]
        self._folder, self._log = folder, folder / "program.log"

    def run(self) -> None:
        """Run the program until it ends."""
        self._finish(self._start(self._command, self._place, SETTINGS))

    def kill_when_planned(self) -> None:
        """Start the program, and kill it when it has planned a batch."""
        planned = self.batches().planned
        self._kill_when(lambda: self.batches().planned > planned)

    def kill_when_written(self) -> None:
        """Start the program, and kill it when the first table contains another batch."""
        written = self.batches().written
        self._kill_when(lambda: self.batches().written > written)

    def batches(self) -> Batches:
        """Return the numbers of batches."""
        checkpoint, written = self._program.checkpoint, self._program.written
        patterns = f"{checkpoint}/offsets/[0-9]*", written, f"{checkpoint}/commits/[0-9]*"
        return Batches(*(len(list(self._target.glob(pattern))) for pattern in patterns))

    def read(self) -> list[tuple[int, int, str]]:
        """Return partition, offset and value of all rows of all tables."""
        rows = []
        for table in self._program.tables:
            command = [sys.executable, "-m", "spark.drivers.read_table", *table]
            settings = {**SETTINGS, **(self._program.settings or {})}
            self._finish(self._start(command, self._folder, settings))
            line = next(line for line in self._log.read_text().splitlines() if line.startswith("[["))
            rows += [(row[0], row[1], row[2]) for row in loads(line)]
        return rows

    def _kill_when(self, is_reached: Callable[[], bool]) -> None:
        process = self._start(self._command, self._place, SETTINGS)
        try:
            wait_for(lambda: is_reached() or process.poll() is not None, 120, what="a batch", interval=0.001)
            assert process.poll() is None, self._log.read_text()[-4000:]
        finally:
            kill(list_session(process.pid))
            process.wait()
            wait_for_session(process.pid)

    def _finish(self, process: subprocess.Popen[bytes]) -> None:
        assert process.wait(200) == 0, self._log.read_text()[-4000:]
        wait_for_session(process.pid)

    def _start(self, command: Sequence[str], place: Path, settings: dict[str, str]) -> subprocess.Popen[bytes]:
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        if self._program.jars is not None:
            options += ["--jars", ",".join(map(str, resolve(self._program.jars)))]
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": shlex.join([*options, "pyspark-shell"]),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")])),
            "SPARK_LOCAL_DIRS": str(self._folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with self._log.open("w") as log:
            return subprocess.Popen(
                command, cwd=place, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )


def wait_for_session(number: int) -> None:
    """Wait until all processes of a session have ended: Spark's JVM deletes its files after the program has ended."""
    wait_for(lambda: not list_session(number), what="the processes have ended")


def create_pipeline(folder: Path, zookeeper: str, topic: str) -> None:
    """Copy the pipeline of the examples, with another address, topic and storage."""
    shutil.copytree(EXAMPLES / "pipeline", folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "spark-pipeline.yml"
    text = file.read_text().replace("localhost:2181", zookeeper).replace("topic: orders", f"topic: {topic}")
    file.write_text(text.replace("file:///var/lib/orders-pipeline", (folder / "storage").as_uri()))


@pytest.mark.parametrize("program", PROGRAMS)
def test_killed_program_writes_each_record_once(
    program: Program, zkconsumer_cluster: Cluster, topic: Callable[..., str], folder: Path
) -> None:
    name = topic(2)
    produced: list[tuple[int, int, str]] = []

    def produce_more(day: int) -> None:
        for partition in range(2):
            first = sum(row[0] == partition for row in produced)
            values = [b"x" if number % 7 == 0 else b"%d" % number for number in range(first, first + 50)]
            now = time.time_ns() // 1_000_000 - day * DAY_MS
            for part in (values[:25], values[25:]):  # a batch contains records of two days
                zkconsumer_cluster.admin.produce(TopicPartition(name, partition), batch(part, timestamp_ms=now))
                now -= DAY_MS
            produced.extend((partition, first + number, value.decode()) for number, value in enumerate(values))

    runner = Runner(program, folder, zkconsumer_cluster, name)
    has_replayed_written = has_replayed_unwritten = False
    for number in range(MAX_KILLS):
        if not HAS_ADMISSION_CONTROL:
            runner.run()  # before Spark 4.2, a run ends after the batch that it replays
        produce_more(number)
        if has_replayed_written:
            runner.kill_when_planned()
        else:
            runner.kill_when_written()
        batches = runner.batches()
        has_replayed_written |= batches.replays_written_batch
        has_replayed_unwritten |= batches.replays_unwritten_batch
        if has_replayed_written and has_replayed_unwritten:
            break
    for _ in range(1 if HAS_ADMISSION_CONTROL else 2):
        runner.run()

    assert sorted(runner.read()) == sorted(produced)
    assert has_replayed_written, "no batch was replayed after the table contained it"
    assert has_replayed_unwritten, "no batch was replayed before the table contained it"
