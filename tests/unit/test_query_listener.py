"""Tests of the progress reports of queries, as the listener reads them."""

from __future__ import annotations

from zkconsumer.spark.monitoring import listener
from zkconsumer.spark.monitoring.lag import offset_object


def test_batch_end_time_is_taken_from_progress() -> None:
    progress = {"timestamp": "2026-01-01T00:00:00.500Z", "durationMs": {"triggerExecution": 250}}
    assert listener._completed_at(progress) == 1_767_225_600.75


def test_offsets_of_other_sources_are_ignored() -> None:
    assert offset_object(7) == offset_object("7") == offset_object(None) == offset_object("[1]") == {}
    assert offset_object('{"a": 1}') == offset_object({"a": 1}) == {"a": 1}
