"""Tests of the runtime of a consumer that is not connected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.consumer.runtime import ConsumerRuntime
from zkconsumer.rebalance.handler import AssignedPartition
from zkconsumer.zookeeper.registry import Registration

P0 = TopicPartition("t", 0)


@pytest.fixture
def runtime() -> Iterator[ConsumerRuntime]:
    config = ConsumerConfig.from_dict({"group.id": "g", "zookeeper.connect": "localhost:1", "consumer.id": "c"})
    made = ConsumerRuntime(config, Registration.static({"t": 1}), None, None, None, None)
    yield made
    made.close()


@pytest.mark.parametrize("offset", [-1, 7])
def test_offset_deleted_during_outage_is_logged(
    offset: int, runtime: ConsumerRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a committed offset, auto.offset.reset applies as if the partition had never been read."""
    runtime.on_partitions_assigned({P0: AssignedPartition("g_c-0", 7)})
    runtime.on_partitions_lost()
    runtime.on_partitions_assigned({P0: AssignedPartition("g_c-0", offset)})
    logged = [record for record in caplog.records if "committed_offset_missing" in record.getMessage()]
    assert len(logged) == (offset < 0)


def test_resets_end_with_ownership(runtime: ConsumerRuntime) -> None:
    """Otherwise, the next commit could lower an offset that another member has committed."""
    runtime.on_partitions_assigned({P0: AssignedPartition("g_c-0", 7)})
    runtime.on_position_changed(P0)
    assert (runtime.take_resets(), runtime.take_resets()) == ({P0}, set())

    runtime.on_position_changed(P0)
    runtime.on_partitions_lost()
    assert runtime.take_resets() == set()
    runtime.on_position_changed(P0)
    runtime.on_partitions_assigned({P0: AssignedPartition("g_c-0", 9)})
    assert runtime.take_resets() == set()


def test_offset_of_earlier_ownership_is_not_committed(
    runtime: ConsumerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic may have been re-created, and its records may have been read by another member."""
    monkeypatch.setattr(type(runtime.member), "assignment", {P0: "g_c-0"})
    runtime.on_partitions_assigned({P0: AssignedPartition("g_c-0", 7)})
    runtime.on_partitions_revoked({P0}, False)
    assert runtime._consume_delivered() == {P0: 7}, "the partition is being released"
    runtime.on_partitions_assigned({P0: AssignedPartition("g_c-0", -1, is_new=True)})
    runtime.on_partitions_revoked({P0}, False)
    assert runtime._consume_delivered() == {}
