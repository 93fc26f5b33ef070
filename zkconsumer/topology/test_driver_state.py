"""Saved state of a ``TopologyTestDriver``, from which another driver can resume."""

from __future__ import annotations

import json
from os import PathLike

from zkconsumer.message import TopicPartition
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
        main: task whose snapshot is part of each commit; None until the task is initialized.

    Raises:
        StreamsError: the file cannot be opened, is in use, or is not a state file.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.file = StateFile(path)
        self.snapshot = self.file.read_snapshot(_TASK)
        saved = self.file.read_snapshot(_DRIVER)
        self.now_ms, offsets = (0, []) if saved is None else json.loads(saved)
        self.offsets = {TopicPartition(topic, partition): offset for topic, partition, offset in offsets}
        self.main: StreamTask | None = None

    def commit(self, now_ms: int) -> None:
        """Atomically write the store changes and the task state to the file.

        Args:
            now_ms: wall-clock time in milliseconds.

        Raises:
            StreamsError: the file cannot be written, or a schedule or a remembered value cannot be saved.
        """
        if self.main is not None:
            self.file.write_snapshot(_TASK, self.main.snapshot())
        offsets = [[*partition, offset] for partition, offset in self.offsets.items()]
        self.file.write_snapshot(_DRIVER, json.dumps([now_ms, offsets]).encode())
        self.file.commit()
