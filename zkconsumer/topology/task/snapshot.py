"""Snapshots: serialized task state, without the stores, from which another process can resume the task.

Format: the magic ``ZKTS``, version, length of the JSON object, CRC-32 of everything else, JSON object, and an Arrow
stream for each partition with unprocessed records.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.topology.loop.columns import SourceColumns
from zkconsumer.topology.loop.records import SourceRecord
from zkconsumer.topology.processor import PunctuationType
from zkconsumer.topology.task.punctuation import SavedSchedule, SavedSchedules, ScheduleKey
from zkconsumer.topology.task.queues import QueueState

_MAGIC = b"ZKTS"

#: Current version of the snapshot format.
FORMAT = 1

#: Magic, version and length of the JSON object; the CRC-32 follows.
_HEAD, _CHECKSUM = struct.Struct("<4sHI"), struct.Struct("<I")
_CONTENT_AT = _HEAD.size + _CHECKSUM.size


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state of a task without its stores.

    Attributes:
        task_id: task id.
        fingerprint: fingerprint of the sub-topology.
        stream_time_ms: highest timestamp of the records processed so far.
        queues: unprocessed records, time and offset of each partition.
        order: see ``PartitionGroup.heap_order``.
        deadlines: see ``PartitionGroup``.
        schedules: schedules of the task.
        remembered: values of ``ProcessorContext.remember``, by node and name.
        metrics: task metrics by name.
        sequence: number of records written by sinks.
    """

    task_id: str
    fingerprint: str
    stream_time_ms: int
    queues: Mapping[TopicPartition, QueueState]
    order: tuple[TopicPartition, ...]
    deadlines: Mapping[TopicPartition, int]
    schedules: SavedSchedules
    remembered: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    sequence: int = 0

    def encode(self) -> bytes:
        """Return the snapshot as bytes."""
        columns = [_to_arrow(state.columns) for state in self.queues.values()]
        queues = [
            [*partition, state.time_ms, state.next_offset, _encode_dropped(state.dropped), len(data)]
            for (partition, state), data in zip(self.queues.items(), columns, strict=True)
        ]
        schedules = {
            kind.name: [[*saved.key, saved.due_ms, saved.interval_ms, saved.is_cancelled] for saved in queue]
            for kind, queue in self.schedules.queues.items()
        }
        content = {
            "task": self.task_id,
            "subtopology": hash_fingerprint(self.fingerprint),
            "stream_time_ms": self.stream_time_ms,
            "queues": queues,
            "order": self.order,
            "deadlines": [[*partition, time_ms] for partition, time_ms in self.deadlines.items()],
            "schedules": schedules,
            "created": sorted([*key, count] for key, count in self.schedules.created.items()),
            "remembered": self.remembered,
            "metrics": self.metrics,
            "sequence": self.sequence,
        }
        head = json.dumps(content, separators=(",", ":")).encode()
        start, rest = _HEAD.pack(_MAGIC, FORMAT, len(head)), b"".join((head, *columns))
        return start + _CHECKSUM.pack(zlib.crc32(rest, zlib.crc32(start))) + rest

    @classmethod
    def decode(cls, data: bytes, task_id: str, fingerprint: str, continued: Collection[str] = ()) -> Snapshot:
        """Decode and validate a task snapshot.

        Args:
            data: result of ``encode``.
            task_id: id of the task that resumes from the snapshot.
            fingerprint: fingerprint of the task's sub-topology.
            continued: see ``TaskRuntime.continued``.

        Raises:
            StreamsError: the snapshot is corrupt, has an unsupported format, or belongs to another task or topology.
        """
        content, columns = _decode_content(data, task_id)
        if content["task"] != task_id:
            raise StreamsError(f"task {task_id}: the snapshot belongs to task {content['task']}")
        if content["subtopology"] not in (hash_fingerprint(fingerprint), *continued):
            found, expected = content["subtopology"][:8], hash_fingerprint(fingerprint)[:8]
            raise StreamsError(
                f"task {task_id}: the snapshot was taken with a different topology (fingerprint {found}, expected "
                f"{expected}); restore the previous nodes, stores and topics"
            )
        return cls(
            task_id=task_id,
            fingerprint=fingerprint,
            stream_time_ms=content["stream_time_ms"],
            queues=_decode_queues(content["queues"], columns),
            order=tuple(TopicPartition(*partition) for partition in content["order"]),
            deadlines={TopicPartition(*partition): time_ms for *partition, time_ms in content["deadlines"]},
            schedules=_decode_schedules(content),
            remembered=content["remembered"],
            metrics=content["metrics"],
            sequence=content["sequence"],
        )

    def check_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Check that the task still reads all partitions in the snapshot.

        Args:
            partitions: partitions of the task.

        Raises:
            StreamsError: the task no longer reads one of them, for example because its topic was deleted.
        """
        missing = sorted(self.queues.keys() - partitions)
        if missing:
            names = ", ".join(f"{topic} partition {number}" for topic, number in missing)
            raise StreamsError(
                f"task {self.task_id}: the snapshot contains partitions that no source reads: {names}; use the "
                "same topics and ApplicationConfig.application_id as when the snapshot was taken"
            )


def check_remembered(node: str, name: str, value: Any) -> Any:
    """Return a copy of a remembered value, or raise an error if a snapshot cannot contain it.

    Raises:
        StreamsError: the value contains an object of an unsupported type, or a dict key that is not a str.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [check_remembered(node, name, item) for item in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {key: check_remembered(node, name, item) for key, item in value.items()}
    raise StreamsError(
        f"processor {node!r}: remembered value {name!r} must be None, a bool, int, float or str, or a list or dict "
        f"(with str keys) of these, got {value!r}"
    )


def _decode_content(data: bytes, task_id: str) -> tuple[Any, bytes]:
    """Validate the snapshot, and return its JSON object and the bytes that follow."""
    if len(data) < _CONTENT_AT or data[: len(_MAGIC)] != _MAGIC:
        raise StreamsError(
            f"task {task_id}: the snapshot is corrupt: it does not begin with a {_MAGIC.decode()} header"
        )
    _, version, length = _HEAD.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _HEAD.size)
    rest = data[_CONTENT_AT:]
    if zlib.crc32(rest, zlib.crc32(data[: _HEAD.size])) != checksum:
        raise StreamsError(f"task {task_id}: the snapshot is corrupt: checksum mismatch")
    if version > FORMAT:
        raise StreamsError(
            f"task {task_id}: snapshot format {version} is newer than the supported format {FORMAT}; upgrade zkconsumer"
        )
    if version != FORMAT:
        raise StreamsError(f"task {task_id}: unknown snapshot format {version}, expected {FORMAT}")
    return json.loads(rest[:length]), rest[length:]


def _decode_queues(queues: list[Any], columns: bytes) -> dict[TopicPartition, QueueState]:
    states, start = {}, 0
    for topic, partition, time_ms, next_offset, dropped, length in queues:
        record = None if dropped is None else SourceRecord(dropped[0], dropped[1], dropped[2], dropped[3], None, None)
        waiting = _from_arrow(columns[start : start + length])
        states[TopicPartition(topic, partition)] = QueueState(time_ms, next_offset, record, waiting)
        start += length
    return states


def _decode_schedules(content: Any) -> SavedSchedules:
    queues = {
        PunctuationType[kind]: tuple(
            SavedSchedule(ScheduleKey(node, method, ordinal), *rest) for node, method, ordinal, *rest in saved
        )
        for kind, saved in content["schedules"].items()
    }
    return SavedSchedules(queues, {(node, method): count for node, method, count in content["created"]})


def _encode_dropped(record: SourceRecord | None) -> list[Any] | None:
    return None if record is None else list(record[:4])


def hash_fingerprint(fingerprint: str) -> str:
    """Return the hash of a sub-topology fingerprint, as stored in snapshots."""
    return hashlib.sha256(fingerprint.encode()).hexdigest()


def _to_arrow(waiting: tuple[SourceColumns, ...]) -> bytes:
    """Encode ``waiting`` as an Arrow stream with one batch per item, or as empty bytes if there are no records."""
    if not waiting:
        return b""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = (pa.int64(), pa.int64(), pa.binary(), pa.binary(), pa.list_(header))
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            *zip(("offset", "timestamp", "key", "value", "headers"), types, strict=True),
        ]
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for columns in waiting:
            topic, partition, *plain, headers = columns.to_lists()
            nested = [
                [{"key": name, "value": value} for name, value in of_row] if of_row else None
                for of_row in headers or ()
            ]
            arrays = [pa.array(list(column), kind) for column, kind in zip(plain, types, strict=False)]
            rows = columns.rows
            stream.write_batch(
                pa.record_batch(
                    [
                        pa.array([topic] * rows, pa.string()),
                        pa.array([partition] * rows, pa.int32()),
                        *arrays,
                        pa.array(nested or [None] * rows, types[4]),
                    ],
                    schema=schema,
                )
            )
    return bytes(sink.getvalue())


def _from_arrow(data: bytes) -> tuple[SourceColumns, ...]:
    if not data:
        return ()
    import pyarrow as pa

    return tuple(
        SourceColumns.from_arrow(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py(), batch)
        for batch in pa.ipc.open_stream(data)
    )
