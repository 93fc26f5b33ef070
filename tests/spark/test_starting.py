"""Options for the start of a query, its topics, and the limits of its batches."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import Load, numbers, produce
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, owners, stored
from kazoo.client import KazooClient

import zkconsumer.spark
from zkconsumer.devcluster.load import batch
from zkconsumer.message import TopicPartition
from zkconsumer.spark.driver.source_reports import find_report

from .queries import Query, delete_records, planned

pytestmark = pytest.mark.timeout(120)

Queries = Callable[..., Query]

NOW = {"availableNow": True}


# ---- starting ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "starts"),
    [
        ({}, {0: 23, 1: 0, 2: 43}),
        pytest.param({"startingOffsets": "earliest"}, {0: 0, 1: 0, 2: 0}, marks=pytest.mark.slow),
        ({"startingOffsets": '{"NAME":{"0":19,"2":-2}}'}, {0: 19, 1: 0, 2: 0}),
        ({"startingOffsetsByTimestamp": '{"NAME":{"0":1500}}'}, {0: 25, 1: 0, 2: 43}),
        pytest.param({"startingTimestamp": "1400"}, {0: 20, 1: 20, 2: 20}, marks=pytest.mark.slow),
    ],
    ids=["group", "earliest", "offsets", "times", "time"],
)
def test_starting_options_are_committed_before_reading(
    wanted: dict[str, str],
    starts: dict[int, int],
    zkconsumer_cluster: Cluster,
    query: Queries,
    topic: Topics,
    group: str,
    zk: KazooClient,
    store: Callable[..., None],
) -> None:
    name, admin = topic(partitions=3), zkconsumer_cluster.admin
    for number in range(3):
        for tenth in range(10):  # five records every 100 ms
            admin.produce(TopicPartition(name, number), batch(numbers(0, 5), timestamp_ms=1000 + 100 * tenth))
    store(name, {0: 23, 2: 43})
    one = query(name, trigger=NOW, **{key: value.replace("NAME", name) for key, value in wanted.items()})
    one.finish()

    assert planned(one.checkpoint) == {0: {(name, number): (start, 50) for number, start in starts.items()}}
    assert stored(zk, group, name) == {0: "50", 1: "50", 2: "50"}


@pytest.mark.slow
@pytest.mark.parametrize("ago_s", [60, -3600])
def test_time_after_last_record_is_end_or_error(
    ago_s: int, zkconsumer_cluster: Cluster, query: Queries, topic: Topics
) -> None:
    """The time may be in the future, as in Spark."""
    name, admin = topic(), zkconsumer_cluster.admin
    admin.produce(TopicPartition(name, 0), batch(numbers(0, 5), timestamp_ms=1000))
    late = {"startingTimestamp": str(int(time.time() - ago_s) * 1000)}
    strict = query(name, trigger=NOW, startingOffsetsByTimestampStrategy="error", **late)
    with pytest.raises(Exception, match=f"topic {name!r} partition 0 has no record at or after timestamp"):
        strict.finish()
    lenient = query(name, trigger=NOW, **late)
    lenient.finish()
    assert lenient.count == 0


@pytest.mark.slow
def test_new_partition_is_read_from_beginning_despite_latest(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, zk: KazooClient, group: str
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    one = query(name, startingOffsets="latest", auto_offset_reset="largest")
    one.wait_for(lambda: stored(zk, group, name) == {0: "10"}, 60, what="the start is committed")
    produce(admin, name, 0, numbers(10, 15))
    one.wait_for_records(5)
    one.handle.processAllAvailable()  # now the batch is in the commit log
    one.stop()
    admin.create_partitions(name, 2)
    produce(admin, name, 1, numbers(0, 7))  # while no query is running
    again = query(name, startingOffsets="latest", auto_offset_reset="largest")
    again.wait_for_records(7)
    assert again.batches[0].spans == {(name, 1): (0, 7, 7)}


@pytest.mark.parametrize(
    ("restart", "start"),
    [
        ("furthest", 20),
        pytest.param("checkpoint", 10, marks=pytest.mark.slow),
        pytest.param("group", 20, marks=pytest.mark.slow),
    ],
)
def test_resume_from_selects_checkpoint_or_group(
    restart: str,
    start: int,
    zkconsumer_cluster: Cluster,
    query: Queries,
    topic: Topics,
    store: Callable[..., None],
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    first = query(name, trigger=NOW)
    first.finish()
    produce(admin, name, 0, numbers(10, 30))
    store(name, {0: 20})
    again = query(name, trigger=NOW, resumeFrom=restart)
    again.finish()
    assert planned(again.checkpoint)[1] == {(name, 0): (start, 30)}


@pytest.mark.slow
def test_checkpoint_of_other_group_or_topics_is_rejected(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, unique: Callable[[str], str]
) -> None:
    name, other, admin = topic(), topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    query(name, trigger=NOW).finish()
    with pytest.raises(Exception, match="the checkpoint belongs to group"):
        query(name, trigger=NOW, group_id=unique("g")).finish()
    with pytest.raises(Exception, match=rf"subscribes to none of the topics in its checkpoint \({name}\)"):
        query(other, trigger=NOW).finish()


@pytest.mark.slow
@pytest.mark.parametrize("filtered", [True, False])
def test_unsubscribed_topics_are_ignored_or_kept(
    filtered: bool, zkconsumer_cluster: Cluster, query: Queries, topic: Topics
) -> None:
    kept, left, admin = topic(), topic(), zkconsumer_cluster.admin
    for name in (kept, left):
        produce(admin, name, 0, numbers(0, 10))
    query(f"{kept},{left}", trigger=NOW).finish()
    for name in (kept, left):
        produce(admin, name, 0, numbers(10, 20))
    again = query(kept, trigger=NOW, ignoreUnsubscribedTopics=str(filtered))
    again.finish()
    assert planned(again.checkpoint)[1].keys() == ({(kept, 0)} if filtered else {(kept, 0), (left, 0)})


# ---- subscribing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["subscribePattern", pytest.param("whitelist", marks=pytest.mark.slow)])
def test_pattern_reads_topics_created_later(
    option: str,
    zkconsumer_cluster: Cluster,
    query: Queries,
    unique: Callable[[str], str],
    zk: KazooClient,
    group: str,
) -> None:
    stem, admin = unique("t"), zkconsumer_cluster.admin
    for name in (f"{stem}-a", f"{stem}-x"):
        admin.create_topic(name)
        produce(admin, name, 0, numbers(0, 10))
    one = query("", subscribe=None, **{option: f"{stem}-[a-m]"})
    one.wait_for_records(10)
    admin.create_topic(f"{stem}-b", 2)
    produce(admin, f"{stem}-b", 1, numbers(0, 5))
    one.wait_for_records(15)
    assert owners(zk, group, f"{stem}-x") == {}
    assert len(owners(zk, group, f"{stem}-b")) == 2


def test_membership_none_reads_all_without_joining(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, zk: KazooClient, group: str
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 10))
    one = query(name, membership="none")
    one.wait_for_records(20)
    assert members(zk, group) == []
    admin.create_partitions(name, 3)
    produce(admin, name, 2, numbers(0, 5))
    one.wait_for_records(25)
    assert stored(zk, group, name) == {}
    one.handle.processAllAvailable()
    one.stop()
    produce(admin, name, 0, numbers(10, 20))
    again = query(name, trigger=NOW, membership="none", commitOffsets="true")
    again.finish()
    assert again.count == 10
    assert stored(zk, group, name) == {0: "20", 1: "10", 2: "5"}


def test_assign_works_without_zookeeper(
    zkconsumer_cluster: Cluster, spark: Any, topic: Topics, checkpoint: Any
) -> None:
    name, admin = topic(partitions=3), zkconsumer_cluster.admin
    for number in range(3):
        produce(admin, name, number, numbers(0, 10))
    frame = (
        spark.readStream.format("zkconsumer")
        .option("kafka.bootstrap.servers", zkconsumer_cluster.bootstrap_servers)
        .option("membership", "none")
        .option("assign", json.dumps({name: [0, 2]}))
        .option("startingOffsets", "earliest")
        .load()
    )
    one = Query(frame, checkpoint, trigger=NOW)
    one.finish()
    assert [batch.spans for batch in one.batches] == [{(name, 0): (0, 10, 10), (name, 2): (0, 10, 10)}]


# ---- limits --------------------------------------------------------------------------------------------


def test_max_offsets_per_trigger_is_shared_fairly(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    produce(admin, name, 1, numbers(0, 250))
    one = query(name, maxOffsetsPerTrigger=100)
    one.wait_for_records(260)
    assert planned(one.checkpoint) == {
        0: {(name, 0): (0, 10), (name, 1): (0, 90)},
        1: {(name, 1): (90, 190)},
        2: {(name, 1): (190, 250)},
    }


@pytest.mark.slow
def test_largest_limit_takes_everything(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 100))
    one = query(name, trigger=NOW, maxOffsetsPerTrigger=9223372036854775807)
    one.finish()
    assert planned(one.checkpoint) == {0: {(name, number): (0, 100) for number in range(2)}}


@pytest.mark.slow
def test_min_offsets_waits_for_max_trigger_delay(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, zk: KazooClient, group: str
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    one = query(name, minOffsetsPerTrigger=20, maxTriggerDelay="1h")
    one.wait_for(lambda: stored(zk, group, name) == {0: "0"}, 60, what="the start is committed")
    one.wait_for((one.checkpoint / "commits" / "0").exists, what="an empty batch, which is not delayed")
    produce(admin, name, 0, numbers(0, 19))
    time.sleep(1)
    assert one.count == 0
    produce(admin, name, 0, numbers(19, 20))
    one.wait_for_records(20)
    one.stop()
    produce(admin, name, 0, numbers(20, 21))
    again = query(name, minOffsetsPerTrigger=20, maxTriggerDelay="1s")
    again.wait_for_records(1)


def test_large_ranges_use_several_tasks(
    zkconsumer_cluster: Cluster, topic: Topics, spark: Any, options: Callable[..., dict[str, str]]
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    frame = spark.read.format("zkconsumer").options(**options(name, maxRecordsPerPartition=30)).load()
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(100))
    least = spark.read.format("zkconsumer").options(**options(name, minPartitions=7)).load()
    assert least.rdd.getNumPartitions() == 7


# ---- deleted records --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_missing_records_are_skipped_if_allowed(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, store: Callable[..., None]
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    produce(admin, name, 1, numbers(0, 50))
    produce(admin, name, 1, numbers(50, 100))
    store(name, {0: 1000, 1: 7})
    delete_records(zkconsumer_cluster, TopicPartition(name, 1), 50)
    produce(admin, name, 0, numbers(0, 10))
    one = query(name, failOnDataLoss="false", clusterUnavailableTimeout="1s")
    one.wait_for_records(60)
    assert one.offsets.keys() == {(0, offset) for offset in range(10)} | {(1, offset) for offset in range(50, 100)}
    assert one.count == len(one.offsets), "no record may be read twice"


@pytest.mark.parametrize("fails", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_records_deleted_after_planning_are_reported(
    fails: bool, zkconsumer_cluster: Cluster, query: Queries, topic: Topics
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 50))
    produce(admin, name, 0, numbers(50, 100))

    def refuse(_batch: Any) -> None:
        delete_records(zkconsumer_cluster, TopicPartition(name, 0), 50)
        raise OSError("the sink is full")

    first = query(name, on_batch=refuse, trigger=NOW)
    with pytest.raises(Exception, match="the sink is full"):
        first.finish()
    again = query(name, trigger=NOW, failOnDataLoss=str(fails))
    if fails:
        text = (
            f"[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] topic {name!r} partition 0: the range [0, 100) is not "
            "completely in the log; the log start offset is 50 and the log end offset is 100."
        )
        with pytest.raises(Exception, match=re.escape(text)):
            again.finish()
    else:
        again.finish()
        assert again.offsets.keys() == {(0, offset) for offset in range(50, 100)}
        assert again.count == len(again.offsets), "no record may be read twice"


@pytest.mark.slow
def test_byte_limit_is_kept_within_factor_two(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for _ in range(10):
        admin.produce(TopicPartition(name, 0), batch([b"x" * 100] * 500, codec="lz4"))
        admin.produce(TopicPartition(name, 1), batch([b"y" * 10_000] * 5))
    one = query(name, maxBytesPerTrigger=100_000)
    one.wait_for_records(5_050)
    sizes = [sum(len(value) for value in batch.column("value")) for batch in one.batches]
    assert sum(sizes) == 1_000_000
    assert all(50_000 <= size <= 200_000 for size in sizes[:-1]), sizes


@pytest.mark.slow
def test_byte_rate_is_kept(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    for _ in range(10):
        admin.produce(TopicPartition(name, 0), batch([b"x" * 100] * 100))
    started = time.monotonic()
    one = query(name, maxBytesPerSecond=25_000)
    one.wait_for_records(1000)
    assert time.monotonic() - started >= 3 * 0.9, "100 kB at the limit, of which the first second is read at once"


# ---- columns, batch reads, names -----------------------------------------------------------------------


@pytest.mark.slow
def test_columns_option_selects_and_orders(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    one = query(name, trigger=NOW, columns="offset,value")
    one.finish()
    [seen] = one.batches
    assert seen.table.column_names == ["offset", "value"]
    assert seen.column("value") == numbers(0, 10)


def test_batch_read_returns_range_of_offsets(
    zkconsumer_cluster: Cluster,
    spark: Any,
    topic: Topics,
    options: Callable[..., dict[str, str]],
    zk: KazooClient,
    group: str,
    store: Callable[..., None],
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        for second in range(10):
            admin.produce(TopicPartition(name, number), batch(numbers(0, 5), timestamp_ms=1000 * second))
    store(name, {0: 42})

    def offsets(**settings: object) -> list[tuple[int, int]]:
        frame = spark.read.format("zkconsumer").options(**options(name, **settings)).load()
        return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())

    def spans(first: tuple[int, int], second: tuple[int, int]) -> list[tuple[int, int]]:
        return [(0, offset) for offset in range(*first)] + [(1, offset) for offset in range(*second)]

    assert offsets() == spans((0, 50), (0, 50))
    assert offsets(startingOffsets="group", endingOffsets=json.dumps({name: {"1": 3}})) == spans((42, 50), (0, 3))
    assert offsets(startingTimestamp=2000, endingTimestamp=4000) == spans((10, 20), (10, 20))
    future = int(time.time() + 3600) * 1000
    assert offsets(startingTimestamp=8000, endingTimestamp=future) == spans((40, 50), (40, 50))
    with pytest.raises(Exception, match="starting offset 42 is greater than ending offset 10"):
        offsets(startingOffsets="group", endingOffsets=json.dumps({name: {"0": 10}}))
    assert (members(zk, group), stored(zk, group, name)) == ([], {0: "42"})


def test_stream_rejects_ending_options_and_writes(spark: Any, query: Queries, topic: Topics) -> None:
    with pytest.raises(Exception, match="option 'endingOffsets' is valid for batch reads only"):
        query(topic(), endingOffsets="latest").finish()
    frame = spark.createDataFrame([(b"v",)], "value binary")
    with pytest.raises(Exception, match=r"format\('zkconsumer'\) does not support writing; use format\('kafka'\)"):
        frame.write.format("zkconsumer").mode("append").save()


@pytest.mark.slow
def test_continuous_load_is_read_under_small_limit(query: Queries, topic: Topics, load: Callable[..., Load]) -> None:
    name = topic(partitions=4)
    writing = load(name, 4)
    one = query(name, maxOffsetsPerTrigger=300)
    one.wait_for_records(1500)
    end = writing.stop()
    one.wait_for_records(end)
    assert one.count == len(one.offsets) == end
    assert max(batch.table.num_rows for batch in one.batches) <= 300


@pytest.mark.slow
def test_partitions_of_leaving_member_keep_offsets(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, plain: Callable[..., Any], zk: KazooClient, group: str
) -> None:
    """Starting options apply to the first assignment; later partitions continue at the group's offset."""
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 10))
    other = plain(name, auto_commit_interval_ms=100)
    wait_until_equal(lambda: stored(zk, group, name), {0: "10", 1: "10"})
    one = query(name, startingOffsets="earliest")
    one.wait_for_records(10)
    assert wait_for(lambda: len(set(owners(zk, group, name).values())) == 2)
    other.leave()
    one.wait_for(lambda: one.state.get("owned") == 2, 30)
    for number in range(2):
        produce(admin, name, number, numbers(10, 15))
    one.wait_for_records(20)
    assert one.count == len(one.offsets) == 20


@pytest.mark.slow
def test_lag_of_running_query_is_reported(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    produce(admin, name, 1, numbers(0, 20))
    one = query(name, maxOffsetsPerTrigger=40)
    one.wait_for(lambda: len(one.handle.recentProgress) == 3, what="the reports of three batches")
    seen = zkconsumer.spark.lag(one.handle)
    assert list(seen.by_time.values()) == [80, 40, 0]
    assert seen.total == 0
    assert tuple(seen.latest[0])[1:] == (name, 0, 100, 100)
    assert "<td>100</td>" in seen._repr_html_()
    reports = [find_report(json.loads(progress.json)["sources"][0]) for progress in one.handle.recentProgress]
    assert [report["maxOffsetsBehindLatest"] for report in reports] == [80, 40, 0]


def test_batch_read_of_empty_range_is_empty(spark: Any, topic: Topics, options: Callable[..., dict[str, str]]) -> None:
    for settings in ({}, {"endingOffsets": "latest"}, {"subscribe": None, "subscribePattern": "no-such-topic"}):
        frame = spark.read.format("zkconsumer").options(**options(topic(), **settings)).load()
        assert frame.count() == 0


@pytest.mark.slow
def test_batch_read_beyond_log_end_fails_or_truncates(
    zkconsumer_cluster: Cluster, spark: Any, topic: Topics, options: Callable[..., dict[str, str]]
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    wanted = {"startingOffsets": json.dumps({name: {"0": 5}}), "endingOffsets": json.dumps({name: {"0": 20}})}

    def count(**settings: str) -> int:
        frame = spark.read.format("zkconsumer").options(**options(name, **wanted, **settings)).load()
        return int(frame.count())

    with pytest.raises(Exception, match="COULD_NOT_READ_OFFSET_RANGE"):
        count()
    assert count(failOnDataLoss="false") == 5


@pytest.mark.slow
def test_batch_read_before_log_start_fails_or_truncates(
    zkconsumer_cluster: Cluster, spark: Any, topic: Topics, options: Callable[..., dict[str, str]]
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 10))
        produce(admin, name, number, numbers(10, 20))
    delete_records(zkconsumer_cluster, TopicPartition(name, 1), 10)
    wanted = {"startingOffsets": json.dumps({name: {"0": 5, "1": 3}})}

    def offsets(**settings: str) -> list[tuple[int, int]]:
        frame = spark.read.format("zkconsumer").options(**options(name, **wanted, **settings)).load()
        return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())

    text = (
        f"topic {name!r} partition 1: the next offset to read is 3, but the log start offset is 10; 7 offsets are lost"
    )
    with pytest.raises(Exception, match="KAFKA_DATA_LOSS.START_OFFSET_RESET") as failure:
        offsets()
    assert text in str(failure.value)
    rest = [(0, offset) for offset in range(5, 20)]
    assert offsets(failOnDataLoss="false") == [*rest, *((1, offset) for offset in range(10, 20))]
    before = json.dumps({name: {"0": 20, "1": 8}})  # all records of the range of partition 1 are deleted
    assert offsets(failOnDataLoss="false", endingOffsets=before) == rest


@pytest.mark.slow
def test_lowered_group_offset_is_read_again_if_configured(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, group: str, zk: KazooClient, store: Callable[..., None]
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 30))
    query(name, trigger=NOW).finish()
    store(name, {0: 10})

    def look(_batch: Any) -> None:
        assert stored(zk, group, name) == {0: "10"}, "an offset from the checkpoint must not be committed at the start"

    again = query(name, trigger=NOW, resumeFrom="group", on_batch=look)
    again.finish()
    assert planned(again.checkpoint)[1] == {(name, 0): (10, 30)}
    assert stored(zk, group, name) == {0: "30"}
