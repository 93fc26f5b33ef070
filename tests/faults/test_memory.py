"""The memory of a consumer with 1,000 partitions and full queues."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.producing import produce
from helpers.znodes import set_offsets
from kazoo.client import KazooClient

from zkconsumer.devcluster import DevCluster, ExistingCluster

PARTITIONS = 1000
RECORDS, SIZE = 512, 1024  # per partition


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("has_offsets", [False, True])
def test_memory_is_bounded_with_thousand_partitions(
    has_offsets: bool,
    zkconsumer_cluster: DevCluster | ExistingCluster,
    topic: Callable[..., str],
    group: str,
    zk: KazooClient,
) -> None:
    """Without committed offsets, the first chunk of each partition announces its start offset."""
    warm, name, admin = topic(), topic(PARTITIONS), zkconsumer_cluster.admin
    if has_offsets:
        set_offsets(zk, group, name, dict.fromkeys(range(PARTITIONS), 0))
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
    assert memory["full"] >= memory["base"] + memory["budget"] // 2, "the queues were full before the first read"
    assert memory["peak"] <= memory["base"] + memory["budget"] + (64 << 20)
