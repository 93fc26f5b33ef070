"""Saved state of a ``TopologyTestDriver``, from which another driver can resume."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from os import PathLike
from typing import Any

from zkconsumer.message import TopicPartition
from zkconsumer.topology.loop.records import SinkRecord
from zkconsumer.topology.stores.files import StateFile
from zkconsumer.topology.task.task import StreamTask

#: Snapshot name of the driver.
_DRIVER = "driver"
#: Snapshot name of the task of all sub-topologies without global stores.
MAIN = "task"


class DriverState:
    """A file with the stores, task states and clock of a driver, which are committed atomically.

    Args:
        path: see ``StateFile``.

    Attributes:
        file: state file.
        now_ms: wall-clock time in milliseconds.
        offsets: last offset of each partition.
        undelivered: records that sinks wrote and that the sources have not received yet.
        tasks: initialized tasks, whose snapshots are part of each commit, by snapshot name.

    Raises:
        StreamsError: the file cannot be opened, is in use, or is not a state file.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.file = StateFile(path)
        saved = self.file.read_snapshot(_DRIVER)
        self.now_ms, offsets, *more = (0, []) if saved is None else json.loads(saved)
        self.offsets = {TopicPartition(topic, partition): offset for topic, partition, offset in offsets}
        self.undelivered = [_from_json(record) for record in (more[0] if more else ())]
        self.tasks: dict[str, StreamTask] = {}

    def read_snapshot(self, name: str) -> bytes | None:
        """Return the snapshot of a task, or None if there is none."""
        return self.file.read_snapshot(name)

    def commit(self, now_ms: int, undelivered: Iterable[SinkRecord]) -> None:
        """Atomically write the store changes and the task state to the file.

        Args:
            now_ms: wall-clock time in milliseconds.
            undelivered: see above.

        Raises:
            StreamsError: the file cannot be written, or a schedule or a remembered value cannot be saved.
        """
        for name, task in self.tasks.items():
            self.file.write_snapshot(name, task.snapshot())
        offsets = [[*partition, offset] for partition, offset in self.offsets.items()]
        self.file.write_snapshot(_DRIVER, json.dumps([now_ms, offsets, [*map(_to_json, undelivered)]]).encode())
        self.file.commit()


def _to_json(record: SinkRecord) -> list[Any]:
    headers = [[name, _encode(value)] for name, value in record.headers]
    return [*record[:3], _encode(record.key), _encode(record.value), headers]


def _from_json(fields: list[Any]) -> SinkRecord:
    topic, partition, timestamp, key, value, headers = fields
    decoded = tuple((name, _decode(value)) for name, value in headers)
    return SinkRecord(topic, partition, timestamp, _decode(key), _decode(value), decoded)


def _encode(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _decode(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
