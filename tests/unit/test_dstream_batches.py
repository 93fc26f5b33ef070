"""Tests of DStream batches that run the plans of several times."""

from __future__ import annotations

import pickle

from zkconsumer.spark.dstreams import Ledger


def test_batch_of_window_runs_all_plans_since_last_one() -> None:
    """Spark requests the times 1 to 3 while it generates the jobs of batch 3."""
    ledger = Ledger()
    for time_ in (1, 2, 3):
        ledger.add(time_, f"batch {time_}", 3)
    assert ledger.times(3) == [1, 2, 3]
    assert ledger.uncompleted() == {3}
    recovered: Ledger = pickle.loads(pickle.dumps(ledger))
    assert ledger.complete({1, 2}) == []
    assert ledger.complete({3}) == ["batch 1", "batch 2", "batch 3"]
    assert recovered.complete({3}) == ["batch 1", "batch 2", "batch 3"]
