"""Connections that the broker closes between two requests, or instead of a response, for each client that keeps one."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

import pytest
from helpers.configurations import plaintext
from helpers.fake_broker import FETCH, FIND_COORDINATOR, LIST_OFFSETS, METADATA, OFFSET_FETCH, PARTITION, FakeBroker
from helpers.waiting import wait_for

from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import BrokerUnavailableError
from zkconsumer.log_ends import LATEST
from zkconsumer.metadata.bootstrap import BootstrapCluster
from zkconsumer.offsets.coordinator import GroupCoordinator
from zkconsumer.simple_consumer import SimpleConsumer

#: Requests of each client, as a function of the broker that returns a call and a function that closes the client.
Client = Callable[[FakeBroker], tuple[Callable[[], object], Callable[[], None]]]


def simple(use: Callable[[SimpleConsumer], object]) -> Client:
    def create(broker: FakeBroker) -> tuple[Callable[[], object], Callable[[], None]]:
        consumer = SimpleConsumer(*broker.endpoint[:2], so_timeout_ms=5000)
        return lambda: use(consumer), consumer.close

    return create


def leaders(broker: FakeBroker) -> tuple[Callable[[], object], Callable[[], None]]:
    lookup = LeaderLookup(plaintext(5))
    return lambda: lookup.leaders([broker.endpoint], [PARTITION])[PARTITION], lookup.close


def logs(broker: FakeBroker) -> tuple[Callable[[], object], Callable[[], None]]:
    logs = LogOffsets(lambda: [broker.endpoint], plaintext(5))
    return lambda: logs.offsets([PARTITION], LATEST)[PARTITION], logs.close


def topics(broker: FakeBroker) -> tuple[Callable[[], object], Callable[[], None]]:
    cluster = BootstrapCluster([broker.endpoint], plaintext(5))
    return lambda: cluster.partitions(["t"])["t"], cluster.close


def coordinator(broker: FakeBroker) -> tuple[Callable[[], object], Callable[[], None]]:
    client = GroupCoordinator("g", lambda: [broker.endpoint], plaintext(5))
    return lambda: client.fetch_offsets([PARTITION])[PARTITION], client.close


CLIENTS: dict[str, tuple[Client, int]] = {
    "fetch": (simple(lambda one: one.fetch("t", 0, 0)), FETCH),
    "list offsets": (simple(lambda one: one.earliest_or_latest_offset("t", 0, -1)), LIST_OFFSETS),
    "metadata": (simple(lambda one: one.metadata(["t"])), METADATA),
    "find coordinator": (simple(lambda one: one.find_coordinator("g")), FIND_COORDINATOR),
    "fetch offsets": (simple(lambda one: one.fetch_offsets("g", [PARTITION])), OFFSET_FETCH),
    "leader lookup": (leaders, METADATA),
    "log offsets": (logs, LIST_OFFSETS),
    "topic lookup": (topics, METADATA),
    "coordinator": (coordinator, OFFSET_FETCH),
}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, broker: FakeBroker) -> Iterator[tuple[Callable[[], object], int]]:
    create, key = CLIENTS[request.param]
    use, close = create(broker)
    yield use, key
    close()


def close_connections(broker: FakeBroker) -> None:
    for connection in list(broker._open):
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    wait_for(lambda: not broker._open)


def test_connection_closed_while_idle_is_opened_again(
    client: tuple[Callable[[], object], int], broker: FakeBroker
) -> None:
    use, _key = client
    expected = use()
    for _ in range(3):
        close_connections(broker)
        assert use() == expected


def test_connection_closed_instead_of_response_is_opened_again_once(
    client: tuple[Callable[[], object], int], broker: FakeBroker
) -> None:
    """A broker ends a SASL session at the first request after its lifetime."""
    use, closed_at = client
    expected = use()
    closings = 1

    def change(key: int, _request: object, body: bytes) -> bytes | None:
        nonlocal closings
        if key == closed_at and closings:
            closings -= 1
            return None
        return body

    broker.change = change
    assert use() == expected
    assert closings == 0
    closings = 5
    with pytest.raises(BrokerUnavailableError):
        use()


def test_new_connection_that_is_closed_is_not_opened_again(broker: FakeBroker) -> None:
    broker.change = lambda key, _request, body: None if key == METADATA else body
    with SimpleConsumer(*broker.endpoint[:2]) as consumer, pytest.raises(BrokerUnavailableError):
        consumer.metadata(["t"])
    assert broker.connections == 1


def test_coordinator_that_stopped_while_idle_is_looked_up_again(broker: FakeBroker) -> None:
    with FakeBroker() as first:
        brokers = [first.endpoint]
        client = GroupCoordinator("g", lambda: brokers, plaintext(5))
        assert client.fetch_offsets([PARTITION]) == {PARTITION: -1}
    broker.committed = {PARTITION: 7}
    brokers = [broker.endpoint]
    assert client.fetch_offsets([PARTITION]) == {PARTITION: 7}
    client.close()
