"""Offsets in the checkpoint of a Spark query: of this source, or of Spark's own.

A checkpoint has a file in ``offsets`` for each batch that was planned, and one in ``commits`` for each that is done.

Source: Spark 4.2 OffsetSeqLog, CommitLog, StreamMetadata; KafkaSourceOffset.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.offset import reached_by, to_offset

#: Whose checkpoints there are.
KINDS = ("zkconsumer", "kafka")


def read(folder: Path) -> dict[TopicPartition, int]:
    """Return the next offset of each partition after the last batch that is done, of all sources of Kafka in it.

    Where two sources know a partition, it is the lower one.

    Raises:
        ConfigurationError: it is no checkpoint, or not one of such a query.
    """
    batch = max(_numbers(folder / "commits"), default=None)
    if batch is None:
        raise ConfigurationError(
            f"{folder} is no checkpoint with a batch that is done: there is no file in its commits"
        )
    file = folder / "offsets" / str(batch)
    try:
        version, _metadata, *sources = file.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from error
    if version != "v1":
        raise ConfigurationError(f"{file} is of version {version!r}; v1 is known")
    found: dict[TopicPartition, int] = {}
    known = 0
    for text in sources:
        try:
            offsets = _offsets(json.loads(text))
        except (ValueError, AttributeError, TypeError, KeyError):
            continue  # of another kind, or without an offset yet
        known += 1
        for partition, offset in offsets.items():
            found[partition] = min(offset, found.get(partition, offset))
    if not known:
        raise ConfigurationError(f"{file} has no source of Kafka: {'; '.join(sources)[:200]}")
    return found


def create(folder: Path, offsets: Mapping[TopicPartition, int], *, kind: str, group: str) -> None:
    """Make a checkpoint whose query goes on at these offsets.

    Args:
        kind: one of ``KINDS``: whose query.
        group: of a query of this source.

    Raises:
        ConfigurationError: there is something at that place.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigurationError(f"{folder} is not empty; a new checkpoint is made in a new folder")
    if kind == "zkconsumer":
        offset = to_offset({p: (until, until) for p, until in offsets.items()}, 0, offsets, group)
    else:
        offset = as_json(offsets)
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}
    # Batch 0 is planned, and empty; that Spark does it makes the state of a query that has some.
    files = {
        "metadata": json.dumps({"id": str(uuid.uuid4())}),
        "offsets/0": "\n".join(["v1", json.dumps(metadata), json.dumps(offset)]),
    }
    if kind == "kafka":  # where batch 0 begins; of the first byte Spark 2.1 needed something
        files["sources/0/0"] = "\0v1\n" + json.dumps(offset)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def as_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as ``startingOffsets`` takes them, of this source and of Spark's own."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(content: Any) -> dict[TopicPartition, int]:
    """Read what ``as_json`` returns.

    Raises:
        ValueError: it is something else.
    """
    found = {
        TopicPartition(t, int(number)): offset for t, numbers in content.items() for number, offset in numbers.items()
    }
    if not all(type(offset) is int and offset >= 0 and p.partition >= 0 for p, offset in found.items()):
        raise ValueError(content)
    return found


def _offsets(content: Any) -> dict[TopicPartition, int]:
    if "ranges" in content and "generation" in content:
        return reached_by(content)
    return from_json(content)


def _numbers(folder: Path) -> list[int]:
    return [int(file.name) for file in folder.iterdir() if file.name.isdigit()] if folder.is_dir() else []
