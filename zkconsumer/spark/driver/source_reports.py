"""What a source reported about a batch: its consumer id, the log end offsets, the lag and the health."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def find_report(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a source reported about a batch; empty if it reported nothing, for example about a replayed batch.

    Args:
        source: entry of the source in the progress report of the batch.
    """
    return offset_object(source.get("latestOffset"))


def offset_object(offset: Any) -> dict[str, Any]:
    """Return an offset from a progress report as a JSON object; empty if the offset is not an object.

    Some Spark releases report the object as a string. Other data sources may report no offset, or one that is not an
    object.
    """
    parsed = json.loads(offset) if isinstance(offset, str) else offset
    return dict(parsed) if isinstance(parsed, dict) else {}
