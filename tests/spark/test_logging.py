"""Log events of the processes that Spark starts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import produce

from zkconsumer.devcluster import DevCluster, ExistingCluster

Cluster = DevCluster | ExistingCluster


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_events_of_tasks_and_planning_process_reach_terminal(
    zkconsumer_cluster: Cluster, topic: Callable[..., str], options: Callable[..., dict[str, str]], folder: Path
) -> None:
    """An error of a task is on the terminal once, and the planning process also shows INFO, without kazoo's."""
    name = topic()
    produce(zkconsumer_cluster.admin, name, 0, [b"good", b"bad !", b"good"])
    chosen = options(name, decoder="lines:Words", corrupt_record_policy="skip")

    done = subprocess.run(
        [sys.executable, "-m", f"{__package__}.log_driver", json.dumps({"folder": str(folder), "options": chosen})],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split()[-1] == "2"
    skipped = (
        f"ERROR zkconsumer.spark: event='undecodable_records_skipped' topic='{name}' partition=0 offset=1 records=1"
    )
    assert done.stderr.count(skipped) == 1, done.stderr
    assert done.stderr.count("INFO zkconsumer.rebalance: event='consumer_registered'") == 1, done.stderr
    assert not re.search("kazoo", done.stderr), done.stderr
