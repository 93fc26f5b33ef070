"""Texts that zkconsumer stores as metadata of committed offsets in Kafka.

- ``zkconsumer topic id: <topic id>``: written by ``KafkaOffsets``, which group members use.
- ``zkconsumer <query id> <batch> <digest version>:<digest>``, or ``zkconsumer first``: the markers of a ``StreamsApp``,
  whose group has no members; see ``spark.streams.markers``.

A topic id is never parsed as a marker, nor a marker as a topic id. Other clients store other metadata or none.
"""

from __future__ import annotations

import re

_TOPIC_ID = "zkconsumer topic id: "
_MARKER = re.compile(r"zkconsumer (\S+) ([0-9]{1,19}) ([0-9]+):([0-9a-f]{8})")

#: Metadata of an offset that a ``StreamsApp`` committed at startup, before the first batch of a task.
FIRST_MARKER = "zkconsumer first"

#: Version of ``task_writer.compute_digest``. Digests of different versions cannot be compared.
_DIGEST_VERSION = "1"


def format_topic_id(topic_id: str) -> str:
    """Return the metadata that contains a topic id."""
    return f"{_TOPIC_ID}{topic_id}"


def parse_topic_id(metadata: str) -> str:
    """Return the topic id that ``metadata`` contains; empty if it contains none."""
    return metadata.removeprefix(_TOPIC_ID) if metadata.startswith(_TOPIC_ID) else ""


def format_marker(query: str, batch: int, digest: int) -> str:
    """Return the metadata that contains the attributes of a ``Marker``."""
    return f"zkconsumer {query} {batch} {_DIGEST_VERSION}:{digest:08x}"


def parse_marker(metadata: str) -> tuple[str, int, int] | None:
    """Return the attributes of the ``Marker`` at the beginning of ``metadata``; None if there is no marker.

    Other characters can follow the marker: librdkafka stores a terminating NUL, and if there is none, it returns bytes
    beyond the metadata. The digest is 0 if it has another version.
    """
    match = _MARKER.match(metadata)
    if match is None:
        return None
    return match[1], int(match[2]), int(match[4], 16) if match[3] == _DIGEST_VERSION else 0
