"""User-defined decoders: rows, errors, and the end of the stream."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import produce
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import stored
from kazoo.client import KazooClient

from zkconsumer.message import TopicPartition
from zkconsumer.spark import lag

from . import lines
from .queries import ALL_AVAILABLE, Query

pytestmark = pytest.mark.timeout(120)

Queries = Callable[..., Query]

NOW = {"availableNow": True}


@pytest.fixture(autouse=True)
def file_of_decoders(spark: Any) -> None:
    """Ship the decoders with ``addPyFile``."""
    spark.sparkContext.addPyFile(str(Path(lines.__file__)))


def column(query: Query, name: str) -> list[Any]:
    """Return one column of all batches."""
    return [value for batch in query.batches for value in batch.column(name)]


def test_decoder_returns_any_number_of_rows(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, zk: KazooClient, group: str
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, [b"one,two", b"", b"three"])
    one = query(name, trigger=NOW, decoder="lines:Words", **{"decoder.separator": ","})
    one.finish()
    [batch] = one.batches
    assert batch.table.column_names == ["word", "length", "at"]
    assert batch.table.to_pylist() == [
        {"word": "one", "length": 3, "at": 0},
        {"word": "two", "length": 3, "at": 0},
        {"word": "three", "length": 5, "at": 2},
    ]
    assert stored(zk, group, name) == {0: "3"}


@pytest.mark.slow
def test_decoder_in_archive_added_after_registration_is_found(
    zkconsumer_cluster: Cluster, spark: Any, query: Queries, topic: Topics, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.write(lines.__file__, "lines_in_archive.py")
    spark.sparkContext.addPyFile(str(tmp_path / "archive.zip"))
    name = topic()
    produce(zkconsumer_cluster.admin, name, 0, [b"one two"])
    one = query(name, trigger=NOW, decoder="lines_in_archive:Words")
    one.finish()
    assert column(one, "word") == ["one", "two"]


@pytest.mark.slow
def test_records_without_rows_advance_offset(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, zk: KazooClient, group: str
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, [b""] * 100)
    one = query(name, trigger=NOW, decoder="lines:Words")
    one.finish()
    assert one.count == 0
    assert stored(zk, group, name) == {0: "100"}


def test_failing_decoder_fails_query_with_position(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, zk: KazooClient, group: str
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, [b"good", b"bad !"])
    one = query(name, trigger=NOW, decoder="lines:Words")
    with pytest.raises(Exception, match=f"topic '{name}' partition 0 offset 1: decoder Words raised ValueError"):
        one.finish()
    assert stored(zk, group, name) == {0: "0"}


@pytest.mark.parametrize("policy", [pytest.param("skip", marks=pytest.mark.slow), "quarantine"])
def test_undecodable_records_are_skipped_or_quarantined(
    policy: str, zkconsumer_cluster: Cluster, query: Queries, topic: Topics
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    partition = TopicPartition(name, 0)
    produce(admin, name, 0, [b"good", b"half !", b"odd ?", b"well", b"large #"])
    one = query(name, trigger=NOW, decoder="lines:Words", corrupt_record_policy=policy)
    one.finish()
    words = column(one, "word")
    if policy == "skip":
        assert words == ["good", "well"]
        # The task reports the number after the only progress report of the query.
        wait_for(lambda: lag(one.handle).records_skipped == {partition: 3}, what="the task has reported")
        return
    assert lag(one.handle).records_skipped == {}
    assert [word for word in words if word is not None] == ["good", "well"]
    found = [corrupt for corrupt in column(one, "corrupt") if corrupt is not None]
    assert [(each["offset"], each["key"], each["value"]) for each in found] == [
        (1, None, b"half !"),
        (2, None, b"odd ?"),
        (4, None, b"large #"),
    ]
    assert "an exclamation mark" in found[0]["error"]
    assert "do not match its schema" in found[1]["error"]
    assert {each["topic"] for each in found} == {name}


@pytest.mark.parametrize("policy", ["raise", "skip", pytest.param("quarantine", marks=pytest.mark.slow)])
def test_batch_decoder_isolates_failing_record(
    policy: str, zkconsumer_cluster: Cluster, query: Queries, topic: Topics
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, [b"%d" % n if n not in (17, 600) else b"x%d" % n for n in range(1000)])
    one = query(name, trigger=NOW, decoder="lines:Numbers", corrupt_record_policy=policy)
    if policy == "raise":
        with pytest.raises(Exception, match=f"topic '{name}' partition 0 offsets 0 to 999: decoder Numbers raised"):
            one.finish()
        return
    one.finish()
    assert sorted(n for n in column(one, "number") if n is not None) == [n for n in range(0, 1000, 2) if n != 600]
    if policy == "quarantine":
        bad = [corrupt["value"] for corrupt in column(one, "corrupt") if corrupt is not None]
        assert sorted(bad) == [b"x17", b"x600"]


@pytest.mark.slow
@pytest.mark.parametrize("trigger", [None, ALL_AVAILABLE], ids=["always", "now"])
def test_end_of_stream_ends_query_after_batch(
    trigger: dict[str, Any] | None,
    zkconsumer_cluster: Cluster,
    query: Queries,
    topic: Topics,
    zk: KazooClient,
    group: str,
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    produce(admin, name, 0, [b"one", b"two . three", b"four"])
    produce(admin, name, 1, [b"other"])
    one = query(name, trigger=trigger, decoder="lines:Words", maxOffsetsPerTrigger=1000)
    if trigger:
        one.finish()
    else:
        one.finish()  # the driver listener stops the query
    # The rows before the end of the stream, and all rows of the other partition in this batch.
    assert sorted(column(one, "word")) == ["one", "other", "two"]
    wait_until_equal(lambda: stored(zk, group, name), {0: "3", 1: "1"})
    one.handle.stop()
    produce(admin, name, 1, [b"later"])
    again = query(name, trigger=NOW, decoder="lines:Words")
    again.finish()
    assert column(again, "word") == []


@pytest.mark.slow
def test_records_after_end_of_stream_are_discarded(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(partitions=6), zkconsumer_cluster.admin
    for partition in range(6):
        for number in range(20):
            text = f"p{partition}n{number}" + (" ." if (partition, number) == (0, 3) else "")
            produce(admin, name, partition, [text.encode() + b" " * 2000])
    one = query(name, trigger=NOW, decoder="lines:Words", fetch_message_max_bytes=3000)
    one.finish()
    kept = [f"p{p}n{n}" for p in range(6) for n in range(20) if p or n <= 3]
    assert sorted(column(one, "word")) == sorted(kept)


def test_batch_read_ignores_end_of_stream(
    zkconsumer_cluster: Cluster, spark: Any, topic: Topics, options: Callable[..., dict[str, str]]
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, [b"one . two"])
    frame = spark.read.format("zkconsumer").options(**options(name, decoder="lines:Words")).load()
    assert [row["word"] for row in frame.collect()] == ["one", ".", "two"]


@pytest.mark.slow
def test_ended_query_stays_ended_after_restart(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, [b"one ."])
    for _ in range(2):
        query(name, decoder="lines:Words").finish()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"decoder": "lines.Words"}, "option 'decoder' must be 'package.module:Name'"),
        ({"decoder": "nowhere:Words"}, "No module named 'nowhere'"),
        ({"decoder": "lines:Nothing"}, "has no attribute 'Nothing'"),
        ({"decoder": "os:getcwd"}, "getcwd must be a subclass of zkconsumer.spark.RecordDecoder"),
        ({"decoder": "lines:NoSchema"}, "must have a class attribute 'schema'"),
        ({"decoder": "lines:Words", "columns": "value"}, "options decoder and columns are mutually exclusive"),
        ({"decoder.separator": ","}, "option decoder.separator requires the option decoder"),
        ({"corrupt.record.policy": "fail"}, "'raise', 'skip' or 'quarantine', got 'fail'"),
    ],
)
def test_invalid_decoder_is_rejected_at_load(
    settings: dict[str, str], text: str, spark: Any, options: Callable[..., dict[str, str]]
) -> None:
    with pytest.raises(Exception, match=re.escape(text)):
        spark.readStream.format("zkconsumer").options(**options("t", **settings)).load()
