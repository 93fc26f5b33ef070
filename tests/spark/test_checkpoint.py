"""``migrate-offsets`` between the group, JSON, and checkpoints of this source or of Spark's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import numbers, produce
from helpers.waiting import wait_until_equal
from helpers.znodes import stored
from kazoo.client import KazooClient

from zkconsumer.spark.compat import HAS_ADMISSION_CONTROL
from zkconsumer.tools.cli import main

from .queries import Query

pytestmark = pytest.mark.timeout(120)

Queries = Callable[..., Query]
Migrate = Callable[..., tuple[int, str]]

NOW = {"availableNow": True}


@pytest.fixture
def migrate(zkconsumer_cluster: Cluster, group: str, capsys: pytest.CaptureFixture[str]) -> Migrate:
    """Run the tool for the test's group; return its exit code and output."""

    def run(source: str, to: str, *options: str) -> tuple[int, str]:
        capsys.readouterr()
        at = ["--zookeeper", zkconsumer_cluster.zookeeper_connect, "--group", group]
        code = main(["migrate-offsets", *at, "--from", source, "--to", to, *options])
        out, errors = capsys.readouterr()
        return code, out + errors

    return run


def sparks_own(spark: Any, cluster: Cluster, topic: str, checkpoint: Path) -> list[int]:
    """Read all available records with Spark's own source; return the offsets of partition 0."""
    seen: list[int] = []

    def note(frame: Any, number: int) -> None:
        del number
        seen.extend(row["offset"] for row in frame.where("partition = 0").collect())

    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = frame.writeStream.foreachBatch(note).option("checkpointLocation", str(checkpoint)).trigger(**NOW).start()
    assert query.awaitTermination(60)
    return seen


@pytest.mark.slow
def test_offsets_move_through_json_to_new_checkpoint(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, migrate: Migrate, folder: Path
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    one = query(name, trigger=NOW)
    one.finish()
    code, text = migrate(f"checkpoint:{one.checkpoint}", "json:-")
    assert (code, json.loads(text)) == (0, {name: {"0": 100, "1": 0}})
    file, made = folder / "offsets.json", folder / "made"
    file.write_text(json.dumps({name: {"0": 90, "1": 0}}))
    assert "2 of 2 offsets would be copied" in migrate(f"json:{file}", f"checkpoint:{made}")[1]
    assert not made.exists()
    assert migrate(f"json:{file}", f"checkpoint:{made}", "--execute")[0] == 0
    if not HAS_ADMISSION_CONTROL:  # the first run ends after the batch of the made checkpoint
        query(name, trigger=NOW, checkpoint=made, resumeFrom="checkpoint").finish()
    again = query(name, trigger=NOW, checkpoint=made, resumeFrom="checkpoint")
    again.finish()
    assert again.offsets == {(0, offset): 1 for offset in range(90, 100)}


def test_query_migrates_from_sparks_source_and_back(
    zkconsumer_cluster: Cluster,
    spark: Any,
    query: Queries,
    topic: Topics,
    migrate: Migrate,
    folder: Path,
    zk: KazooClient,
    group: str,
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    assert sparks_own(spark, zkconsumer_cluster, name, folder / "own") == list(range(100))
    produce(admin, name, 0, numbers(100, 120))

    code, text = migrate(f"checkpoint:{folder / 'own'}", "zookeeper", "--execute")
    assert (code, "1 of 1 offsets copied to zookeeper" in text) == (0, True), text
    assert stored(zk, group, name) == {0: "100"}
    one = query(name, trigger=NOW)
    one.finish()
    assert one.offsets == {(0, offset): 1 for offset in range(100, 120)}
    wait_until_equal(lambda: stored(zk, group, name), {0: "120"})

    produce(admin, name, 0, numbers(120, 150))
    back = folder / "back"
    assert migrate("zookeeper", f"checkpoint:{back}", "--checkpoint-of", "kafka", "--execute")[0] == 0
    files = {str(file.relative_to(back)) for file in back.rglob("*") if file.is_file()}
    assert files == {"metadata", "sources/0/0"}, "Spark 4.1 fails if a planned batch is resumed"
    assert sparks_own(spark, zkconsumer_cluster, name, back) == list(range(120, 150))


@pytest.mark.slow
def test_checkpoint_offsets_are_copied_to_kafka(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, migrate: Migrate
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 7))
    one = query(name, trigger=NOW, commitOffsets="false")
    one.finish()
    assert migrate(f"checkpoint:{one.checkpoint}", "kafka", "--execute")[0] == 0
    assert json.loads(migrate("kafka", "json:-")[1]) == {name: {"0": 7}}


def test_invalid_checkpoint_is_rejected(migrate: Migrate, folder: Path) -> None:
    (folder / "odd").write_text('{"t": {"0": "x"}}')
    full, broken, newer = folder / "full", folder / "broken", folder / "newer"
    (full / "commits").mkdir(parents=True)
    newer_offset = '{"version": 99, "generation": 1, "ranges": {"t": {"0": [0, 1]}}}'
    for checkpoint, offset in ((broken, '{"logOffset": 7}'), (newer, newer_offset)):
        (checkpoint / "commits").mkdir(parents=True)
        (checkpoint / "offsets").mkdir()
        (checkpoint / "commits" / "3").touch()
        (checkpoint / "offsets" / "3").write_text(f"v1\n{{}}\n{offset}")
    for source, to, text in (
        (f"checkpoint:{folder}", "json:-", "is not a checkpoint with a finished batch"),
        (f"checkpoint:{folder / 'none'}", "json:-", "none' is not an existing local directory"),
        (f"checkpoint:{broken}", "json:-", "contains no offsets of a Kafka source"),
        (f"checkpoint:{newer}", "json:-", "the checkpoint has offset format version 99"),
        (f"json:{folder / 'odd'}", "zookeeper", 'could not read offsets of the form {"topic":{"0":23}}'),
        (f"json:{folder / 'none'}", "zookeeper", "No such file"),
        ("zookeeper", "zookeeper", "--from and --to must differ"),
    ):
        code, output = migrate(source, to)
        assert (code, text in output) == (2, True), output
    (folder / "good").write_text('{"t": {"0": 1}}')
    code, output = migrate(f"json:{folder / 'good'}", f"checkpoint:{full}", "--execute")
    assert (code, "is not empty" in output) == (2, True), output
