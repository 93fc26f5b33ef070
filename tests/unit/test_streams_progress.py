"""Unit tests of ``streams/progress.py``."""

from __future__ import annotations

import json
import time
from typing import Any

from zkconsumer.health import HealthState
from zkconsumer.spark.streams.dataframe import METRICS, METRICS_COLUMN
from zkconsumer.spark.streams.progress import ProgressReports


def report_of(batch: int, metrics: list[dict[str, dict[str, int]]], **offset: Any) -> dict[str, Any]:
    """Return the progress report of a batch that took two seconds."""
    return {
        "id": "query",
        "batchId": batch,
        "batchDuration": 2_000,
        "observedMetrics": {METRICS: {METRICS_COLUMN: [json.dumps(of_task) for of_task in metrics]}},
        "sources": [{"latestOffset": json.dumps({"time": 1})}, {"latestOffset": json.dumps({"lag": 0, **offset})}],
        "stateOperators": [{"customMetrics": {"rocksdbLoadLatencyMs": 1_500 if batch == 0 else 0}}],
    }


def test_metrics_of_batches_are_added() -> None:
    reports = ProgressReports()
    assert reports.progress() is None

    first = reports.add(report_of(0, [{"0_0": {"processed": 10}}, {"0_1": {"processed": 5, "dropped": 1}}]))
    second = reports.add(report_of(1, [{"0_0": {"processed": 2_000}}], lag=7))

    assert (first, second) == (15, 2_000)
    assert reports.task_metrics() == {"0_0": {"processed": 2_010}, "0_1": {"processed": 5, "dropped": 1}}
    assert str(reports.progress()) == (
        "batch 1 took 2.0 s; 2,015 records processed (1,000/s in the last batch), 1 dropped, lag 7, healthy"
    )


def test_progress_shows_time_to_load_state() -> None:
    reports = ProgressReports()
    reports.add(report_of(0, []))

    assert str(reports.progress()).startswith("batch 0 took 2.0 s, 1.5 s to load the state; 0 records")


def test_health_reason_keeps_its_first_time() -> None:
    reports, before = ProgressReports(), time.time()
    reports.add(report_of(0, [], healthReasons=["leader_not_found"]))
    [first] = reports.health_reasons()
    reports.add(report_of(1, [], healthReasons=["leader_not_found", "fetch_failed"]))

    again, other = reports.health_reasons()

    assert first == again
    assert (again.code, again.state) == ("leader_not_found", HealthState.STALLED)
    assert before <= again.since <= other.since <= time.time()
    reports.add(report_of(2, []))
    assert not list(reports.health_reasons())


def test_records_in_own_source_topics_are_work() -> None:
    reports = ProgressReports()

    assert reports.add(report_of(0, [{"0_0": {"looped": 5}}, {"0_1": {"processed": 2}}])) == 7
    assert reports.add(report_of(1, [{"0_0": {}}])) == 0
    progress = reports.progress()
    assert progress is not None
    assert progress.processed == 2
