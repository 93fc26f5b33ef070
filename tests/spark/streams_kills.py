"""An application whose processes are killed at random moments, and the comparison of its results with a replay."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from helpers.aliases import Cluster
from helpers.topics import end_offsets
from helpers.waiting import wait_for

from zkconsumer.topology import Topology

from .streams_feed import Feed
from .streams_output import Output, OutputRecord
from .streams_process import Driver
from .streams_replay import KEEP_BATCHES, Replay, TopicReader, read_log

#: Fraction of kills that wait for new output, so that the application makes progress. The others also hit its start.
_AFTER_OUTPUT = 0.7
_MAX_START_S = 12.0
_MAX_BATCH_S = 2.0
_PROGRESS_TIMEOUT_S = 150.0
_END_TIMEOUT_S = 200.0


class KilledApplication:
    """Runs the topology ``ticking`` while a feed writes records; see ``drivers/streams.py``.

    Args:
        cluster: the cluster.
        topology: the topology.
        output: the topic to which it writes.
        settings: settings of the driver.
        partitions: number of partitions of its source.
        start: starts a driver with settings.
        rng: selects moments and records.

    Attributes:
        driver: the current driver.
        kills: number of kills by kind of process.
    """

    def __init__(
        self,
        cluster: Cluster,
        topology: Topology,
        output: Output,
        settings: dict[str, Any],
        partitions: int,
        start: Callable[[dict[str, Any]], Driver],
        rng: random.Random,
    ) -> None:
        self._cluster, self._topology, self._output = cluster, topology, output
        self._partitions, self._rng = partitions, rng
        self._settings = {**settings, "topology": "ticking"}
        self._settings["conf"] = {**settings.get("conf", {}), **KEEP_BATCHES}
        self._start = start
        self._source: str = settings["source"]
        self._begin = time.monotonic()
        self.kills: Counter[str] = Counter()
        self.driver = start(self._settings)
        self._feed = Feed(cluster, self._source, partitions, random.Random(rng.random()))

    def wait_for_output(self) -> None:
        """Wait until the application has written a new record."""
        known = len(self._output.fetch())

        def has_progress() -> bool:
            self.driver.check_running()
            return self._output.has_new(known)

        try:
            wait_for(has_progress, _PROGRESS_TIMEOUT_S, what="the application writes records")
        except AssertionError:
            print(self.driver.log)
            raise

    def wait_for_moment(self) -> None:
        """Wait until a random moment."""
        if self._rng.random() < _AFTER_OUTPUT:
            self.wait_for_output()
            time.sleep(self._rng.random() * _MAX_BATCH_S)
        else:
            time.sleep(self._rng.random() * _MAX_START_S)
        self.driver.check_running()

    def kill_driver(self) -> None:
        """Kill the driver with its process group, and start another one."""
        self.driver.kill()
        self.count("driver")
        self.driver = self._start(self._settings)

    def count(self, kind: str) -> None:
        """Count and print a kill."""
        self.kills[kind] += 1
        print(f"{time.monotonic() - self._begin:5.0f} s, {len(self._output.records)} records: killed {kind}")

    def finish(self) -> None:
        """Let the application process all records, and end it after a batch."""
        self._feed.stop()
        self.driver.kill()
        query = {**self._settings["query"], "available_now": True}
        self.driver = self._start({**self._settings, "query": query})
        assert self.driver.wait(_END_TIMEOUT_S) == 0, self.driver.log

    def close(self) -> None:
        """Stop the feed and kill the driver."""
        try:
            self._feed.stop()
        finally:
            self.driver.kill()

    def check(self, spark: Any) -> None:
        """Compare the output and the state with those of tasks in memory, after ``finish``.

        Args:
            spark: a Spark session that reads the state.
        """
        checkpoint = Path(self._settings["checkpoint"])
        is_exactly_once = self._settings["query"]["processing_guarantee"] == "exactly_once_v2"
        ends = end_offsets(self._cluster, self._source, self._partitions)
        batches = read_log(checkpoint)
        reader = TopicReader(self._cluster, {self._source: self._partitions})
        reader.finish()
        replay = Replay(self._topology, reader.records, batches)
        expected = replay.list_outputs()
        total = sum(map(len, expected.values()))
        wait_for(partial(self._output.has_all, total), what="the output is readable")
        found: defaultdict[bytes, list[OutputRecord]] = defaultdict(list)
        for record in self._output.fetch():
            found[record.key].append(record)
        ticks = sum(batch.tick_ms is not None for batch in batches)
        print(f"{len(batches)} batches, {ticks} ticks, {sum(ends.values())} records, {total} outputs")
        print(f"{sum(map(len, found.values()))} outputs with repeated ones; kills: {dict(self.kills)}")
        assert found.keys() == expected.keys()
        for key, records in found.items():
            once = records if is_exactly_once else discard_repeated(records)
            assert [(record.value, record.timestamp_ms) for record in once] == expected[key]
            assert {(record.value, record.timestamp_ms) for record in records} == set(expected[key])
            if not is_exactly_once:
                assert {record.task for record in records} == {key.decode()}
                assert [record.sequence for record in once] == list(range(len(once)))
        replay.check_states(spark, checkpoint)


def discard_repeated(records: Collection[OutputRecord]) -> list[OutputRecord]:
    """Return the records of a task without those whose sequence number was read before, as a reader does it."""
    once: list[OutputRecord] = []
    for record in records:
        if not once or record.sequence > once[-1].sequence:
            once.append(record)
    return once
