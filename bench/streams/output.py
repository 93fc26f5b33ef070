"""Output topics of the applications, and their throughput.

An output record contains a key and its new count; its timestamp is the time when the broker appended it. At any time,
the sum of the last counts of all keys is the number of input records that were counted. An application that forwards
only the last change of a key per commit is therefore measured in the same way as an application that forwards each
change.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.streams.workload import PARTITIONS
from zkconsumer import ConsumerConfig, create_consumer
from zkconsumer.devcluster import DevCluster

#: Part of the run in which the longest output pause is searched for, as fractions of all records. The measurement
#: window starts at the beginning of that pause.
START_FRACTIONS = 0.1, 0.3

_CONFIG = {"message.timestamp.type": "LogAppendTime"}


def create_topic(cluster: DevCluster, topic: str) -> str:
    """Create an output topic, and return its name."""
    return cluster.create_topic(topic, PARTITIONS, config=_CONFIG)


def count_records(cluster: DevCluster, topic: str) -> int:
    """Return the number of records in a topic."""
    return sum(cluster.admin.offsets(topic, PARTITIONS).values())


@dataclass(frozen=True)
class Window:
    """The part of a run that is measured.

    Attributes:
        records: number of input records that were counted in the window.
        start: start time, in seconds since the epoch.
        end: time of the last output record, in seconds since the epoch.
    """

    records: int
    start: float
    end: float

    @property
    def rate(self) -> float:
        """Input records per second."""
        return self.records / (self.end - self.start)


class Output:
    """All records of an output topic.

    Args:
        keys: key of each record as a number; the records of a partition are in log order.
        counts: count in each record.
        times: append time of each record, in milliseconds since the epoch.

    Attributes:
        records: the arguments, as ``(keys, counts, times)``.
    """

    def __init__(self, keys: Any, counts: Any, times: Any) -> None:
        self.records = keys, counts, times
        order = np.argsort(keys, kind="stable")
        self._keys, counts = keys[order], counts[order]
        is_last: Any = np.append(self._keys[1:] != self._keys[:-1], True) if len(keys) else np.zeros(0, bool)
        self.last_keys, self.last_counts = self._keys[is_last], counts[is_last]
        before: Any = np.append(0, counts[:-1])
        before[1:][is_last[:-1]] = 0
        by_time = np.argsort(times[order], kind="stable")
        self._times, self._counted = times[order][by_time], np.cumsum((counts - before)[by_time])

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def total(self) -> int:
        """Number of input records that were counted."""
        return int(self.last_counts.sum())

    def find_window(self) -> Window:
        """Return the part of the run to measure, which excludes the startup of the application.

        An application that commits large batches writes in bursts. The window starts after one burst and ends after
        another, so that it contains all the work for the counted records.
        """
        first, last = (int(np.searchsorted(self._counted, share * self.total)) for share in START_FRACTIONS)
        pauses = np.diff(self._times[first : last + 2])
        start = first + int(np.argmax(pauses))
        counted = int(self._counted[-1] - self._counted[start])
        return Window(counted, self._times[start] / 1000, self._times[-1] / 1000)

    def curve(self, step_s: float = 1.0) -> list[tuple[float, int]]:
        """Return (seconds since the first output record, number of records counted by then) pairs."""
        seconds: Any = np.arange(0, (self._times[-1] - self._times[0]) / 1000 + step_s, step_s)
        places: Any = np.searchsorted(self._times, self._times[0] + seconds * 1000, side="right") - 1
        return [(float(at), int(self._counted[place])) for at, place in zip(seconds, places, strict=True)]


def read_output(cluster: DevCluster, topic: str) -> Output:
    """Read all records of an output topic."""
    wanted = count_records(cluster, topic)
    config = ConsumerConfig.from_dict(
        {
            "group.id": f"bench-{uuid.uuid4().hex[:8]}",
            "zookeeper.connect": cluster.zookeeper_connect,
            "auto.offset.reset": "smallest",
        }
    )
    batches: list[Any] = []
    with create_consumer(config) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        for batch in stream.batches(65_536) if wanted else ():
            batches.append(batch)
            wanted -= batch.num_rows
            if wanted <= 0:
                break
    keys, counts = (np.concatenate([_numbers(batch, name) for batch in batches]) for name in ("key", "value"))
    times = [batch.column("timestamp").cast("timestamp[ms]").cast("int64").to_numpy() for batch in batches]
    return Output(keys, counts, np.concatenate(times))


def _numbers(batch: Any, name: str) -> Any:
    """Convert a column of 8-byte values to numbers."""
    data = b"".join(batch.column(name).to_pylist())
    return np.frombuffer(data, ">i8").astype(np.int64)
