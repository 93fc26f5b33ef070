"""Saved state of a ``TopologyTestDriver``, from which another driver can resume."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from os import PathLike
from typing import Any

from zkconsumer.message import TopicPartition
from zkconsumer.topology.records import SinkRecord
from zkconsumer.topology.stores.files import StateFile
from zkconsumer.topology.task import StreamTask

#: Snapshot names of the driver and of its task.
_DRIVER, _TASK = "driver", "task"


class DriverState:
    """A file with the stores, task state and clock of a driver, which are committed atomically.

    Args:
        path: see ``StateFile``.

    Attributes:
        file: state file.
        snapshot: snapshot of the task; None if the file is new.
        now_ms: wall-clock time in milliseconds.
        offsets: last offset of each partition.
        undelivered: records that sinks wrote and that the sources have not received yet.
        main: task whose snapshot is part of each commit; None until the task is initialized.

    Raises:
        StreamsError: the file cannot be opened, is in use, or is not a state file.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.file = StateFile(path)
        self.snapshot = self.file.read_snapshot(_TASK)
        saved = self.file.read_snapshot(_DRIVER)
        self.now_ms, offsets, *more = (0, []) if saved is None else json.loads(saved)
        self.offsets = {TopicPartition(topic, partition): offset for topic, partition, offset in offsets}
        self.undelivered = [_from_json(record) for record in (more[0] if more else ())]
        self.main: StreamTask | None = None

    def commit(self, now_ms: int, undelivered: Iterable[SinkRecord]) -> None:
        """Atomically write the store changes and the task state to the file.

        Args:
            now_ms: wall-clock time in milliseconds.
            undelivered: see above.

        Raises:
            StreamsError: the file cannot be written, or a schedule or a remembered value cannot be saved.
        """
        if self.main is not None:
            self.file.write_snapshot(_TASK, self.main.snapshot())
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
