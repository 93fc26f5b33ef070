"""Tests of the client of the group coordinator with a broker on a socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.configurations import plaintext
from helpers.fake_broker import FakeBroker

from zkconsumer import TopicPartition
from zkconsumer.errors import ClosedError, RetriableError, ZkConsumerError
from zkconsumer.offsets.coordinator import GroupCoordinator

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
HIGHEST = (1 << 63) - 1


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def coordinator(broker: FakeBroker) -> Iterator[GroupCoordinator]:
    coordinator = GroupCoordinator("g", lambda: [broker.endpoint], plaintext(5))
    yield coordinator
    coordinator.close()


def test_highest_integer_is_no_committed_offset(broker: FakeBroker, coordinator: GroupCoordinator) -> None:
    """A fetcher would wait for the partition's end, which this offset stands for, and fetch nothing."""
    broker.committed = {A: 5, B: HIGHEST}
    with pytest.raises(
        ZkConsumerError, match=f"partition t-1 for group 'g' must be below {HIGHEST}, got {HIGHEST}; set"
    ) as raised:
        coordinator.fetch_offsets([A, B])
    assert not isinstance(raised.value, RetriableError)
    assert coordinator.fetch_offsets([A]) == {A: 5}


def test_offset_below_the_highest_integer_is_returned(broker: FakeBroker, coordinator: GroupCoordinator) -> None:
    broker.committed = {A: HIGHEST - 1}
    assert coordinator.fetch_offsets([A, B]) == {A: HIGHEST - 1, B: -1}


def test_closed_client_does_not_connect_again(broker: FakeBroker) -> None:
    client = GroupCoordinator("g", lambda: [broker.endpoint], plaintext(5))
    client.close()

    with pytest.raises(ClosedError):
        client.fetch_offsets(None)

    assert broker.connections == 0
