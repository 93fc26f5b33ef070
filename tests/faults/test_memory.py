"""The memory of a consumer with 1,000 partitions and full queues."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import produce

from zkconsumer.devcluster import DevCluster, ExistingCluster

PARTITIONS = 1000
RECORDS, SIZE = 512, 1024  # per partition


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_memory_is_bounded_with_thousand_partitions(
    zkconsumer_cluster: DevCluster | ExistingCluster, topic: Callable[..., str], group: str
) -> None:
    warm, name, admin = topic(), topic(PARTITIONS), zkconsumer_cluster.admin
    produce(admin, warm, 0, [b"one"])
    for partition in range(PARTITIONS):
        produce(admin, name, partition, [os.urandom(SIZE)] * RECORDS)
    properties = {**zkconsumer_cluster.consumer_properties, "group.id": group, "auto.offset.reset": "smallest"}
    child = Path(__file__).with_name("child_reader.py")
    arguments = [warm, name, str(PARTITIONS * RECORDS), json.dumps(properties)]
    done = subprocess.run([sys.executable, str(child), *arguments], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    memory = json.loads(done.stdout)
    print({key: f"{value / 2**20:.0f} MiB" for key, value in memory.items()})
    assert memory["peak"] <= memory["base"] + memory["budget"] + (64 << 20)
