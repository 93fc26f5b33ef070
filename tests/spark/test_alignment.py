"""Event-time alignment: partitions that are ahead wait for slower ones, but not for idle ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import numbers, produce
from pyspark.sql import functions as f

from zkconsumer.devcluster.load import batch
from zkconsumer.message import TopicPartition

from .queries import Query, divides_available_now, planned

pytestmark = pytest.mark.timeout(120)

Queries = Callable[..., Query]

NOW = {"availableNow": True}
MINUTE = 60_000

#: First timestamp in milliseconds since 1970, recent enough that brokers do not delete the records by age.
START = int(time.time() // 3600 - 12) * 3600_000


def fill(cluster: Cluster, name: str, partition: int, times: range, at_once: int = 1) -> None:
    """Write a record for each time in milliseconds; each batch of ``at_once`` records has the time of its first one."""
    values = list(times)
    for first in range(0, len(values), at_once):
        cluster.admin.produce(
            TopicPartition(name, partition), batch(numbers(0, at_once), timestamp_ms=START + values[first])
        )


def windowed_count(stream: Any, checkpoint: Path) -> int:
    """Return the number of rows that a count by minute includes, with a watermark delay of ten minutes."""
    counts: dict[Any, int] = {}

    def note(frame: Any, number: int) -> None:
        del number
        counts.update({row["window"]["start"]: row["count"] for row in frame.collect()})

    by_minute = stream.withWatermark("timestamp", "10 minutes").groupBy(f.window("timestamp", "1 minute")).count()
    query = (
        by_minute.writeStream.foreachBatch(note)
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(90)
    finally:
        query.stop()
    return sum(counts.values())


@divides_available_now
@pytest.mark.slow
@pytest.mark.timeout(400)  # runs three stateful queries
def test_slow_partition_loses_no_rows_to_watermark(
    zkconsumer_cluster: Cluster, spark: Any, topic: Topics, options: Callable[..., dict[str, str]], folder: Path
) -> None:
    """Partition 0 spans 90 minutes, partition 1 the last 30 minutes; a batch contains a tenth of all records."""
    name = topic(partitions=2)
    fill(zkconsumer_cluster, name, 0, range(0, 90 * MINUTE, MINUTE // 10), 10)
    fill(zkconsumer_cluster, name, 1, range(60 * MINUTE, 90 * MINUTE, MINUTE // 10), 10)
    total = 900 + 300
    own = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", zkconsumer_cluster.bootstrap_servers)
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", total // 8)
        .load()
    )
    limited = options(name, maxOffsetsPerTrigger=total // 8)
    plain = spark.readStream.format("zkconsumer").options(**limited, membership="none").load()
    aligned = spark.readStream.format("zkconsumer").options(**limited, maxAlignmentLag="5m").load()
    theirs = total - windowed_count(own, folder / "own")
    without = total - windowed_count(plain, folder / "plain")
    ours = total - windowed_count(aligned, folder / "aligned")
    print(f"rows dropped of {total}: Spark's own source {theirs}, ours {ours}, ours without maxAlignmentLag {without}")
    assert ours == 0
    assert theirs > total / 10
    assert without > total / 10


@pytest.mark.slow
def test_silent_partition_delays_until_idle_timeout(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name = topic(partitions=3)
    fill(zkconsumer_cluster, name, 0, range(0, 10 * MINUTE, MINUTE))
    fill(zkconsumer_cluster, name, 1, range(5 * MINUTE, 15 * MINUTE, MINUTE))
    started = time.monotonic()
    one = query(name, maxAlignmentLag="2m", idleTimeout="3s")  # partition 2 is empty
    one.wait_for_records(1)
    assert time.monotonic() - started > 3
    one.wait_for_records(18)  # partition 0 is idle after its last record
    one.wait_for_records(20)
    ahead = [
        (batch.spans.get((name, 0), (0, 0, 0))[1], batch.spans.get((name, 1), (0, 0, 0))[1]) for batch in one.batches
    ]
    first = next(ranges for _, ranges in sorted(planned(one.checkpoint).items()) if ranges)
    assert first == {(name, 0): (0, 3)}, "the first batch must contain the minutes 0 to 2"
    # Each is read up to two minutes beyond the next record of the slower one. At its end, partition 0 holds back
    # partition 1 until it is idle.
    assert [pair for pair in ahead if any(pair)] == [(3, 0), (6, 1), (9, 4), (10, 7), (0, 10)]
    assert one.state["idlePartitions"]


@pytest.mark.slow
def test_later_records_wait_for_new_horizon(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name = topic(partitions=2)
    for partition in range(2):
        fill(zkconsumer_cluster, name, partition, range(1))
    one = query(name, maxAlignmentLag="2m", idleTimeout="60s")
    one.wait_for_records(2)
    one.handle.processAllAvailable()
    fill(zkconsumer_cluster, name, 1, range(MINUTE, 20 * MINUTE, MINUTE), 20)
    fill(zkconsumer_cluster, name, 1, range(10 * MINUTE, 30 * MINUTE, MINUTE))
    one.wait_for_records(22)  # the 20 records have the same time
    one.handle.processAllAvailable()
    assert one.batches[-1].spans == {(name, 1): (1, 21, 20)}


@divides_available_now
@pytest.mark.slow
def test_future_timestamp_does_not_stop_others(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name = topic()
    for minute in (0, 500, *range(1, 20)):
        fill(zkconsumer_cluster, name, 0, range(minute * MINUTE, minute * MINUTE + 1))
    one = query(name, trigger=NOW, maxAlignmentLag="2m")
    one.finish()
    assert one.offsets.keys() == {(0, offset) for offset in range(21)}
    assert one.offsets.total() == 21


@divides_available_now
@pytest.mark.slow
def test_event_times_are_taken_from_decoder(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    produce(admin, name, 0, [b"%d" % (minute * MINUTE) for minute in range(10)])
    produce(admin, name, 1, [b"%d" % (minute * MINUTE) for minute in range(5, 15)])
    one = query(name, trigger=NOW, decoder="times_of_values:Times", maxAlignmentLag="2m")
    one.finish()
    found = [batch.table.to_pylist() for batch in one.batches]
    assert [row["minute"] for row in found[0]] == [0, 1, 2]
    assert sum(len(rows) for rows in found) == 20
    for rows in found:
        assert max(row["minute"] for row in rows) - min(row["minute"] for row in rows) <= 2 + 1


@divides_available_now
@pytest.mark.slow
def test_records_without_timestamps_disable_alignment(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    one = query(name, trigger=NOW, decoder="times_of_values:Timeless", maxAlignmentLag="2m")
    one.finish()
    assert one.count == 10
    assert one.state["eventTimeAlignment"] == "off"
