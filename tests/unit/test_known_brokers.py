"""Removal of brokers, including all configured ones, after the first Metadata response; with fake brokers."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from helpers.configurations import plaintext
from helpers.fake_broker import API_VERSIONS, FIND_COORDINATOR, METADATA, FakeBroker, FakeCluster

from zkconsumer.broker.known_brokers import KnownBrokers
from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import AuthenticationError, BrokerUnavailableError, UnsupportedBrokerError
from zkconsumer.log_ends import LATEST
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.metadata.bootstrap import BootstrapCluster
from zkconsumer.offsets.coordinator import GroupCoordinator

PARTITION = TopicPartition("t", 0)
ONE, TWO, THREE, FOUR = (Endpoint("127.0.0.1", port) for port in range(1, 5))


@pytest.fixture
def fakes() -> Iterator[FakeCluster]:
    made = FakeCluster(3)
    yield made
    made.close()


def addresses(brokers: list[Endpoint]) -> list[tuple[str, int]]:
    return [broker[:2] for broker in brokers]


def test_named_brokers_precede_configured_ones() -> None:
    known = KnownBrokers()
    assert {*known.before([ONE, TWO])} == {ONE, TWO}
    known.record([TWO, THREE])
    for _ in range(20):
        ordered = known.before([ONE, TWO])
        assert ({*ordered[:2]}, ordered[2:]) == ({TWO, THREE}, [ONE])
    known.record([])
    assert len(known.before([ONE])) == 3, "a response without brokers says nothing"


def test_listed_brokers_precede_named_ones() -> None:
    known = KnownBrokers()
    assert known.added_to([ONE, TWO]) == [ONE, TWO]
    known.record([Endpoint(*TWO[:2], has_api_versions=True), THREE])
    for _ in range(20):
        assert known.added_to([ONE, TWO, FOUR]) == [TWO, ONE, FOUR, THREE]
    assert known.added_to([]) != []


def test_brokers_can_be_removed_in_any_order(record_property: Callable[[str, object], None]) -> None:
    """After the first response, at least one broker of the last response is always running."""
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    for number in range(6):
        _replace_brokers(random.Random(seed + number), f"seed {seed + number}")


def _replace_brokers(rng: random.Random, label: str) -> None:
    fakes = FakeCluster(3)
    configured = [broker.endpoint for broker in rng.sample(fakes.brokers, rng.randint(1, 2))]
    with ExitStack() as closing_all:
        closing_all.callback(fakes.close)
        cluster = closing_all.enter_context(closing(BootstrapCluster(configured, plaintext(5))))
        finder = closing_all.enter_context(closing(LeaderLookup(plaintext(5))))
        logs = closing_all.enter_context(closing(LogOffsets(cluster.brokers, plaintext(5), max_age_s=0.0)))
        coordinator = closing_all.enter_context(closing(GroupCoordinator("g", cluster.brokers, plaintext(5))))
        uses: dict[str, Callable[[], object]] = {
            "describe": lambda: cluster.partitions(["t"]),
            "list": cluster.topics,
            "ids": lambda: cluster.look_up_topic_ids(["t"]),
            "lead": lambda: finder.leaders(cluster.brokers(), [PARTITION])[PARTITION],
            "plan": lambda: logs.offsets([PARTITION], LATEST)[PARTITION],
            "fetch offsets": lambda: coordinator.fetch_offsets([PARTITION]),
        }
        for use in uses.values():
            use()
        for _ in range(8):
            fakes.replace_some(rng, lambda: cluster.partitions(["t"]))  # the members poll the metadata
            for name in rng.sample(sorted(uses), len(uses)):
                try:
                    uses[name]()
                except BrokerUnavailableError:
                    # A leader or coordinator may have been removed; the next call looks it up again.
                    try:
                        uses[name]()
                    except BrokerUnavailableError as error:
                        raise AssertionError(f"{label}: {name}") from error


def test_configured_broker_is_used_if_named_ones_are_unreachable() -> None:
    """The advertised addresses may be reachable from inside another network only."""
    with FakeBroker() as reachable, socket.create_server(("127.0.0.1", 0)) as silent:
        reachable.peers = [Endpoint("127.0.0.1", silent.getsockname()[1])]
        with closing(BootstrapCluster([reachable.endpoint], plaintext(2))) as cluster:
            for _ in range(3):
                started = time.monotonic()
                assert cluster.partitions(["t"]) == {"t": [0]}
                assert cluster.look_up_topic_ids(["t"]).ids.keys() == {"t"}
                assert time.monotonic() - started < 4
                assert addresses(cluster.brokers())[-1] == reachable.endpoint[:2]
                cluster._leaders._disconnect()


def test_tasks_use_brokers_of_last_response(fakes: FakeCluster) -> None:
    with closing(BootstrapCluster([fakes.brokers[0].endpoint], plaintext(5))) as cluster:
        assert len(cluster.brokers()) == 1
        cluster.partitions(["t"])
        assert {*addresses(cluster.brokers())} == {broker.endpoint[:2] for broker in fakes.brokers}


def test_leaders_are_looked_up_again_after_max_age(fakes: FakeCluster) -> None:
    """Otherwise, a client whose leaders never fail would not learn about the brokers that replace all others."""
    brokers = [fakes.brokers[0].endpoint]
    for max_age_s, expected in (0.0, 3), (60.0, 1):
        before = sum(broker.metadata_requests for broker in fakes.brokers)
        with closing(LogOffsets(lambda: brokers, plaintext(5), max_age_s=max_age_s)) as logs:
            for _ in range(3):
                logs.offsets([PARTITION], LATEST)
        assert sum(broker.metadata_requests for broker in fakes.brokers) - before == expected


def test_failed_refresh_keeps_known_leaders(fakes: FakeCluster) -> None:
    with closing(LogOffsets(list, plaintext(5), max_age_s=0.0)) as logs:
        leader = fakes.brokers[0]
        logs.leaders[PARTITION] = (0, leader.endpoint)
        assert logs.offsets([PARTITION], LATEST) == {PARTITION: 0}


def _require_tls(broker: FakeBroker) -> None:
    broker.change_frame = lambda _key, _frame: b"\x15\x03\x03\x00\x02\x02\x46\0"


def _drop_requests(broker: FakeBroker) -> None:
    broker.newest = {API_VERSIONS: 2}


#: How a broker fails, and the error if all brokers fail in this way.
FAILURES = {
    "stopped": (FakeBroker.close, BrokerUnavailableError),
    "requires TLS": (_require_tls, AuthenticationError),
    "other versions": (_drop_requests, UnsupportedBrokerError),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("request_key", [METADATA, FIND_COORDINATOR])
def test_brokers_that_fail_are_skipped(request_key: int, failure: str, fakes: FakeCluster) -> None:
    fail, expected = FAILURES[failure]
    brokers = [broker.endpoint for broker in fakes.brokers]

    def look_up() -> object:
        if request_key == METADATA:
            with closing(LeaderLookup(plaintext(5))) as lookup:
                return lookup.metadata(brokers, ["t"])
        with closing(GroupCoordinator("g", lambda: brokers, plaintext(5))) as coordinator:
            return coordinator.fetch_offsets([PARTITION])

    for broker in fakes.brokers[:-1]:
        fail(broker)
    assert look_up()
    fail(fakes.brokers[-1])
    with pytest.raises(expected) as raised:
        look_up()
    assert type(raised.value) is expected
