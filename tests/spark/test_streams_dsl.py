"""Topologies of ``StreamsBuilder`` on Spark, with repartition topics."""

from __future__ import annotations

import importlib
import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from helpers.aliases import Topics
from helpers.waiting import wait_for

from zkconsumer.devcluster import Admin
from zkconsumer.devcluster.load import batch
from zkconsumer.log_ends import EARLIEST, LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.app import StreamsApp
from zkconsumer.topology import Topology

from .streams_output import Output

sys.path.append(str(Path(__file__).parent / "on_path"))

counting_words: Callable[[str, str], Topology] = importlib.import_module("dsl_topologies").counting_words

PARTITIONS, LINES = 3, 40


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_words_are_counted_across_partitions(
    app: Callable[..., StreamsApp],
    topic: Topics,
    admin: Admin,
    group: str,
    output_of: Callable[[str], Output],
) -> None:
    source, sink = topic(PARTITIONS), topic(1)
    output, rng, expected = output_of(sink), random.Random(3), Counter[bytes]()
    for start in (0, LINES):
        for number in range(PARTITIONS):
            lines = [b" ".join(b"word%d" % rng.randrange(30) for _ in range(5)) for _ in range(LINES)]
            admin.produce(TopicPartition(source, number), batch(lines))
            expected.update(word for line in lines for word in line.split())
        running = app(counting_words(source, sink), config={"statestore_cache_max_bytes": 0}, purge_interval_ms=500)
        running.start()
        words = expected.total()
        wait_for(partial(output.has_all, words), 90, what="each word has a count")
        if start:
            internal = f"{group}-counts-repartition"
            wait_for(partial(has_no_records, admin, internal), 60, what="the processed words are deleted")
        assert running.close()

    counts: dict[bytes, int] = {}
    for key, value in output.read():
        count = int.from_bytes(value, "big")
        counts[key] = max(count, counts.get(key, 0))
    assert counts == expected


def has_no_records(admin: Admin, topic: str) -> bool:
    """Return whether all records of a topic were deleted."""
    starts, ends = (admin.offsets(topic, PARTITIONS, time) for time in (EARLIEST, LATEST))
    return bool(starts == ends and any(ends.values()))
