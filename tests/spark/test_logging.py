"""Log events of the processes that Spark starts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.aliases import Cluster
from helpers.processes import run_module
from helpers.producing import produce

from zkconsumer import TopicPartition

from .queries import delete_records


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_events_of_tasks_and_planning_process_reach_terminal(
    zkconsumer_cluster: Cluster, topic: Callable[..., str], options: Callable[..., dict[str, str]], folder: Path
) -> None:
    """An error of a task is on the terminal once, and the planning process also shows INFO, without kazoo's."""
    name, lost = topic(), topic()
    produce(zkconsumer_cluster.admin, name, 0, [b"good", b"bad !", b"good"])
    produce(zkconsumer_cluster.admin, lost, 0, [b"deleted", b"deleted"])
    produce(zkconsumer_cluster.admin, lost, 0, [b"kept"])
    delete_records(zkconsumer_cluster, TopicPartition(lost, 0), 2)
    chosen = options(name, decoder="lines:Words", corrupt_record_policy="skip")
    batch = options(lost, startingOffsets=json.dumps({lost: {"0": 0}}), failOnDataLoss="false")
    settings = json.dumps({"folder": str(folder), "options": chosen, "batch": batch})

    done = run_module("spark.drivers.log", settings, timeout=150)

    assert done.stdout.split()[-2:] == ["2", "1"]
    skipped = (
        f"ERROR zkconsumer.spark: event='undecodable_records_skipped' topic='{name}' partition=0 offset=1 records=1"
    )
    assert done.stderr.count(skipped) == 1, done.stderr
    assert len(re.findall(f"WARNING zkconsumer.spark: event='records_lost'.*{lost!r}", done.stderr)) == 1, done.stderr
    assert done.stderr.count("INFO zkconsumer.rebalance: event='consumer_registered'") == 1, done.stderr
    assert not re.search("kazoo", done.stderr), done.stderr
