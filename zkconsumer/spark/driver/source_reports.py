"""What a source reported about a batch: its consumer id, the log end offsets, the lag and the health.

With Spark 4.2 and later, the progress report of a batch contains this report as ``latestOffset``. Earlier versions
repeat the end offset of the batch there, and the planning process sends the report to the driver listener.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zkconsumer.spark.driver.recent_values import RecentValues

#: Maximum number of batches whose reports are kept. ``recentProgress`` contains the reports of 100 batches by default.
_MAX_BATCHES = 1000

_reports: RecentValues[str, Mapping[str, Any]] = RecentValues(_MAX_BATCHES)  # by end offset of the batch


def add_report(end: Mapping[str, Any], report: Mapping[str, Any]) -> None:
    """Store the report about a batch that a planning process sent.

    Args:
        end: offset of the batch.
    """
    _reports.put(_to_key(end), report)


def find_report(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a source reported about a batch; empty if it reported nothing, for example about a replayed batch.

    Args:
        source: entry of the source in the progress report of the batch.
    """
    latest = offset_object(source.get("latestOffset"))
    if "ranges" not in latest:
        return latest
    return _reports.get(_to_key(latest), {})


def offset_object(offset: Any) -> dict[str, Any]:
    """Return an offset from a progress report as a JSON object; empty if the offset is not an object.

    Some Spark releases report the object as a string. Other data sources may report no offset, or one that is not an
    object.
    """
    parsed = json.loads(offset) if isinstance(offset, str) else offset
    return dict(parsed) if isinstance(parsed, dict) else {}


def _to_key(end: Mapping[str, Any]) -> str:
    return json.dumps(end, sort_keys=True)
