"""The state of a ``TopologyTestDriver`` in a file, with which another driver continues."""

from __future__ import annotations

import json
from os import PathLike

from zkconsumer.message import TopicPartition
from zkconsumer.topology.stores.files import StateFile
from zkconsumer.topology.task import StreamTask

#: Names of the snapshots of the driver and of its task.
_DRIVER, _TASK = "driver", "task"


class DriverState:
    """Stores, task and clock of a driver in a file, which are committed together.

    Args:
        path: see ``StateFile``.

    Attributes:
        file: the file.
        snapshot: snapshot of the task; None in a new file.
        now_ms: wall-clock time in milliseconds.
        offsets: the last offset of each partition.
        main: the task whose snapshot each commit contains; None until it is initialized.

    Raises:
        StreamsError: the file cannot be opened, is in use, or is something else.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.file = StateFile(path)
        self.snapshot = self.file.read_snapshot(_TASK)
        saved = self.file.read_snapshot(_DRIVER)
        self.now_ms, offsets = (0, []) if saved is None else json.loads(saved)
        self.offsets = {TopicPartition(topic, partition): offset for topic, partition, offset in offsets}
        self.main: StreamTask | None = None

    def commit(self, now_ms: int) -> None:
        """Write the changes of the stores and the state of the task to the file, all or none.

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
