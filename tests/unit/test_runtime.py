"""Tests of the runtime of a consumer that is not connected."""

from __future__ import annotations

import pytest

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.consumer.runtime import ConsumerRuntime
from zkconsumer.rebalance.handler import AssignedPartition
from zkconsumer.zookeeper.registry import Registration

P0 = TopicPartition("t", 0)


@pytest.mark.parametrize("offset", [-1, 7])
def test_offset_deleted_during_outage_is_logged(offset: int, caplog: pytest.LogCaptureFixture) -> None:
    """Without a committed offset, auto.offset.reset applies as if the partition had never been read."""
    config = ConsumerConfig.from_dict({"group.id": "g", "zookeeper.connect": "localhost:1", "consumer.id": "c"})
    runtime = ConsumerRuntime(config, Registration.static({"t": 1}), None, None, None, None)
    runtime.on_partitions_assigned({P0: AssignedPartition("g_c-0", 7)})
    runtime.on_partitions_lost()
    runtime.on_partitions_assigned({P0: AssignedPartition("g_c-0", offset)})
    logged = [record for record in caplog.records if "committed_offset_missing" in record.getMessage()]
    assert len(logged) == (offset < 0)
    runtime.close()
