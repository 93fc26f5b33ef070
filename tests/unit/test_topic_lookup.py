"""Tests of what Metadata responses say about the existence of topics, from brokers on sockets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing

import pytest
from helpers.clocks import Clock
from helpers.configurations import plaintext
from helpers.fake_broker import FakeBroker

from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.broker.topics import TopicLookup, TopicStatus
from zkconsumer.errors import ConfigurationError, NotLeaderError, RetriableError, TopicAuthorizationError
from zkconsumer.message import Endpoint
from zkconsumer.metadata.bootstrap import BootstrapCluster
from zkconsumer.simple_consumer import SimpleConsumer

UNKNOWN, NO_LEADER, INVALID, DENIED, STORAGE_ERROR = 3, 5, 17, 29, 56


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    """Two brokers that know topic ``t`` with three partitions, and each other."""
    with FakeBroker() as one, FakeBroker() as two:
        for broker in (one, two):
            broker.partition_counts = {"t": 3}
            broker.peers = [one.endpoint, two.endpoint]
        yield [one, two]


def cluster_of(*brokers: FakeBroker) -> BootstrapCluster:
    return BootstrapCluster([broker.endpoint for broker in brokers], plaintext(5))


@pytest.fixture
def cluster(brokers: list[FakeBroker]) -> Iterator[BootstrapCluster]:
    """The metadata of the two brokers, with topic ``t`` looked up."""
    cluster = cluster_of(*brokers)
    assert cluster.partitions(["t"]) == {"t": [0, 1, 2]}
    assert cluster.topics() == ["t"]
    yield cluster
    cluster.close()


@pytest.fixture
def connected(cluster: BootstrapCluster, brokers: list[FakeBroker]) -> tuple[FakeBroker, FakeBroker]:
    """The broker to which the cluster is connected, and the other one."""
    first, second = brokers
    return (first, second) if first.metadata_requests else (second, first)


@pytest.mark.parametrize("stale", [{}, {"t": 2}])
def test_stale_response_of_one_broker_is_ignored(
    cluster: BootstrapCluster, connected: tuple[FakeBroker, FakeBroker], stale: dict[str, int]
) -> None:
    connected[0].partition_counts = stale
    for _ in range(3):
        assert cluster.partitions(["t"]) == {"t": [0, 1, 2]}
        assert cluster.topics() == ["t"]


def test_starting_member_ignores_stale_response(brokers: list[FakeBroker]) -> None:
    brokers[0].partition_counts = {}
    for _ in range(4):  # the broker is chosen at random
        cluster = cluster_of(*brokers)
        assert cluster.partitions(["t"]) == {"t": [0, 1, 2]}
        cluster.close()


@pytest.mark.parametrize(("present", "found"), [({}, {}), ({"t": 2}, {"t": [0, 1]})])
def test_two_brokers_confirm_a_deletion(
    cluster: BootstrapCluster, brokers: list[FakeBroker], present: dict[str, int], found: dict[str, list[int]]
) -> None:
    for broker in brokers:
        broker.partition_counts = present
    assert cluster.partitions(["t"]) == found
    assert cluster.topics() == [*found]


def test_response_of_single_broker_deletes_nothing(
    cluster: BootstrapCluster, connected: tuple[FakeBroker, FakeBroker]
) -> None:
    current, other = connected
    other.close()
    current.partition_counts = {}
    for _ in range(2):
        assert cluster.partitions(["t"]) == {"t": [0, 1, 2]}
        assert cluster.topics() == ["t"]


def test_single_broker_is_believed_after_grace_period(brokers: list[FakeBroker]) -> None:
    (current, other), clock = brokers, Clock()
    with closing(LeaderLookup(plaintext(5))) as leaders:
        lookup = TopicLookup(leaders, lambda: [current.endpoint], clock=clock)
        assert lookup.look_up(["t"])["t"].status is TopicStatus.EXISTS
        other.close()
        current.partition_counts = {}
        for _ in range(2):
            assert lookup.look_up(["t"])["t"].status is TopicStatus.MISSING
            assert lookup.list_topics()["t"].status is TopicStatus.MISSING
            clock.now += 5.0
        assert lookup.look_up(["t"])["t"].status is TopicStatus.DELETED
        assert lookup.list_topics() == {}
        current.partition_counts = {"t": 1}
        assert lookup.look_up(["t"])["t"].partitions == (0,)


def test_present_topics_cost_one_request(cluster: BootstrapCluster, connected: tuple[FakeBroker, FakeBroker]) -> None:
    current, other = connected
    before = current.metadata_requests
    for _ in range(5):
        cluster.partitions(["t"])
    assert (current.metadata_requests - before, other.metadata_requests) == (5, 0)


@pytest.mark.parametrize("code", [NO_LEADER, DENIED, STORAGE_ERROR])
def test_other_errors_do_not_mean_deleted(code: int, cluster: BootstrapCluster, brokers: list[FakeBroker]) -> None:
    for broker in brokers:
        broker.topic_errors = {"t": code}
    for _ in range(3):
        assert cluster.partitions(["t"]) == {"t": [0, 1, 2]}
        assert cluster.topics() == ["t"], "brokers omit it from a response for all topics"
    for broker in brokers:
        broker.topic_errors, broker.partition_counts = {}, {"t": 4}
    assert cluster.partitions(["t"]) == {"t": [0, 1, 2, 3]}


@pytest.mark.parametrize("code", [NO_LEADER, DENIED, STORAGE_ERROR])
def test_other_errors_have_no_grace_period(code: int, brokers: list[FakeBroker]) -> None:
    clock = Clock()
    with closing(LeaderLookup(plaintext(5))) as leaders:
        lookup = TopicLookup(leaders, lambda: [broker.endpoint for broker in brokers], clock=clock)
        assert lookup.look_up(["t"])["t"].status is TopicStatus.EXISTS
        for broker in brokers:
            broker.topic_errors = {"t": code}
        for _ in range(3):
            clock.now += 100.0
            assert lookup.look_up(["t"])["t"].status in (TopicStatus.UNAVAILABLE, TopicStatus.DENIED)


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (DENIED, TopicAuthorizationError, "'t' was denied: TOPIC_AUTHORIZATION_FAILED (29); grant READ on"),
        (INVALID, ConfigurationError, "'t' was rejected: INVALID_TOPIC_EXCEPTION (17); correct the topic name"),
        (NO_LEADER, NotLeaderError, "'t' is unavailable: LEADER_NOT_AVAILABLE (5)"),
        (STORAGE_ERROR, RetriableError, "'t' is unavailable: KAFKA_STORAGE_ERROR (56)"),
    ],
)
def test_error_of_unknown_topic_is_raised(
    code: int, kind: type[Exception], text: str, brokers: list[FakeBroker]
) -> None:
    for broker in brokers:
        broker.topic_errors = {"t": code}
    cluster = cluster_of(*brokers)
    with pytest.raises(kind) as raised:
        cluster.partitions(["t", "other"])
    assert text in str(raised.value)
    cluster.close()


def test_problem_of_known_topic_is_recorded(cluster: BootstrapCluster, brokers: list[FakeBroker]) -> None:
    for broker in brokers:
        broker.topic_errors = {"t": DENIED}
    cluster.partitions(["t"])
    assert cluster.problems["t"].code == "topic_authorization_failed"
    for broker in brokers:
        broker.topic_errors = {}
    cluster.partitions(["t"])
    assert cluster.problems == {}


def test_broker_reached_by_another_address_does_not_confirm_itself() -> None:
    with FakeBroker() as broker:
        broker.partition_counts = {}
        broker.peers = [Endpoint("127.0.0.2", broker.endpoint.port)]  # no listener; as behind a load balancer
        lookup = TopicLookup(leaders := LeaderLookup(plaintext(5)), lambda: [broker.endpoint])
        assert lookup.look_up(["t"])["t"].status is TopicStatus.MISSING
        leaders.close()


def test_unidentified_broker_needs_two_others(brokers: list[FakeBroker]) -> None:
    with FakeBroker() as balancer:
        for broker in (*brokers, balancer):
            broker.peers, broker.partition_counts = [one.endpoint for one in brokers], {}
        lookup = TopicLookup(leaders := LeaderLookup(plaintext(5)), lambda: [balancer.endpoint])
        for known_by in brokers:
            known_by.partition_counts = {"t": 1}
            assert lookup.look_up(["t"])["t"].status is TopicStatus.EXISTS
            known_by.partition_counts = {}
        assert lookup.look_up(["t"])["t"].status is TopicStatus.DELETED
        requests = [broker.metadata_requests for broker in brokers]
        assert lookup.look_up(["t"])["t"].status is TopicStatus.DELETED, "without asking the others again"
        assert requests == [broker.metadata_requests for broker in brokers]
        leaders.close()


def test_other_bootstrap_server_knows_topic(brokers: list[FakeBroker]) -> None:
    """A broker without metadata of the cluster returns no other brokers."""
    stale, current = brokers
    stale.partition_counts, stale.peers = {}, []
    servers = [stale.endpoint]
    lookup = TopicLookup(leaders := LeaderLookup(plaintext(5)), lambda: servers)
    assert lookup.look_up(["t"])["t"].status is TopicStatus.MISSING
    servers.append(current.endpoint)
    for _ in range(3):
        assert lookup.look_up(["t"])["t"].status is TopicStatus.EXISTS
    leaders.close()


@pytest.mark.parametrize("codes", [*itertools.permutations([0, UNKNOWN, DENIED, STORAGE_ERROR], 2)])
def test_only_two_unknown_responses_delete(codes: tuple[int, int], brokers: list[FakeBroker]) -> None:
    lookup = TopicLookup(leaders := LeaderLookup(plaintext(5)), lambda: [broker.endpoint for broker in brokers])
    for broker, code in zip(brokers, codes, strict=True):
        broker.topic_errors = {"t": code} if code else {}
    for _ in range(3):
        assert lookup.look_up(["t"])["t"].status not in (TopicStatus.DELETED, TopicStatus.MISSING)
    leaders.close()


def test_simple_consumer_reports_denied_topic(brokers: list[FakeBroker]) -> None:
    brokers[0].topic_errors = {"t": DENIED}
    with SimpleConsumer(*brokers[0].endpoint[:2]) as simple:
        with pytest.raises(TopicAuthorizationError, match="describe topic 't'"):
            simple.metadata(["t"])
        assert simple.metadata(["missing"]) == {}
