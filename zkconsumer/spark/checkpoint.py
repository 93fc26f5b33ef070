"""Reads and creates checkpoints of Spark queries that use this source or Spark's Kafka source.

A checkpoint contains a file in ``offsets`` for each planned batch, and a file in ``commits`` for each finished batch.

Source: Spark 4.2 OffsetSeqLog, CommitLog, StreamMetadata; KafkaSourceOffset.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zkconsumer.errors import ConfigurationError
from zkconsumer.excerpt import excerpt
from zkconsumer.message import TopicPartition
from zkconsumer.spark.offset import BatchOffset, check_format, offsets_of

#: Exceptions that are raised when malformed content is parsed.
_MALFORMED = (AttributeError, KeyError, RecursionError, TypeError, ValueError)


def read(folder: Path) -> dict[TopicPartition, int]:
    """Return each partition's next offset after the last finished batch, for all Kafka sources of the query.

    If two sources of the query read the same partition, the lower offset is returned.

    Raises:
        ConfigurationError: the checkpoint does not exist or cannot be read, has no finished batch, has no Kafka source,
            or was written by a later zkconsumer release.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"checkpoint {str(folder)!r} is not an existing local directory")
    batch = max(_numbers(folder / "commits"), default=None)
    if batch is None:
        raise ConfigurationError(
            f"{folder} is not a checkpoint with a finished batch: directory {folder / 'commits'} contains no batch"
        )
    file = folder / "offsets" / str(batch)
    try:
        version, _metadata, *sources = file.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"could not read {file}: {error}") from error
    if version != "v1":
        raise ConfigurationError(f"{file} must have version 'v1', got {excerpt(version)}")
    found: dict[TopicPartition, int] = {}
    known = 0
    for text in sources:
        try:
            offsets = _offsets(json.loads(text))
        except ConfigurationError:
            raise  # the checkpoint was written by a later zkconsumer release
        except _MALFORMED:
            continue  # not a Kafka source, or a source without an offset
        known += 1
        for partition, offset in offsets.items():
            found[partition] = min(offset, found.get(partition, offset))
    if not known:
        raise ConfigurationError(f"{file} contains no offsets of a Kafka source: {excerpt('; '.join(sources))}")
    return found


def create(folder: Path, offsets: Mapping[TopicPartition, int], *, kind: str, group: str) -> None:
    """Create a checkpoint from which a query resumes at ``offsets``.

    Args:
        kind: source of the query, ``zkconsumer`` or ``kafka``.
        group: consumer group of the query; used only if ``kind`` is ``zkconsumer``.

    Raises:
        ConfigurationError: the directory is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigurationError(f"{folder} is not empty; choose a new directory for the checkpoint")
    files = {"metadata": json.dumps({"id": str(uuid.uuid4())})}
    if kind == "zkconsumer":
        ranges = {partition: (offset, offset) for partition, offset in offsets.items()}
        content = BatchOffset(ranges=ranges, generation=0, known=frozenset(offsets), group=group).to_json()
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}
        # Batch 0 is planned but not finished, so Spark runs it. This initializes the state store of a stateful query.
        files["offsets/0"] = "\n".join(["v1", json.dumps(metadata), json.dumps(content)])
    else:
        # Only the start offsets: Spark 4.1 fails if a query with AvailableNow resumes with an unfinished batch. Spark
        # 2.1 requires the first byte to be 0.
        files["sources/0/0"] = "\0v1\n" + json.dumps(as_json(offsets))
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def as_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets in the JSON format of the option ``startingOffsets``."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def parse(text: str) -> dict[TopicPartition, int]:
    """Parse the JSON format of ``as_json``.

    Raises:
        ConfigurationError: the text is not JSON, or does not have this format.
    """
    try:
        return offsets_of(json.loads(text))
    except _MALFORMED as error:
        raise ConfigurationError(f"the JSON cannot be parsed: {excerpt(str(error))}") from error


def _offsets(content: Any) -> dict[TopicPartition, int]:
    if "ranges" in content and "generation" in content:
        check_format(content)
        return BatchOffset.from_json(content).ends
    return offsets_of(content)


def _numbers(folder: Path) -> list[int]:
    return [int(file.name) for file in folder.iterdir() if re.fullmatch("[0-9]+", file.name)] if folder.is_dir() else []
