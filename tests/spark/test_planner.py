"""The planner as a member of a group on the cluster; the test makes the calls that Spark makes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.batch_offsets import offset_json
from helpers.producing import numbers, produce
from helpers.teardown import started
from helpers.threads import in_thread
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import owners, stored
from helpers.zookeeper import expire_session
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, TopicPartition, ZookeeperConsumerConnector
from zkconsumer.errors import ConsumerRebalanceFailedError
from zkconsumer.rebalance.assignors import assign_flink
from zkconsumer.rebalance.member import GroupMember
from zkconsumer.spark.offset import INITIAL, from_offset
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.factory import create_planner
from zkconsumer.spark.planning.partition_state import PartitionState
from zkconsumer.spark.planning.planner import Planner
from zkconsumer.zookeeper.registry import Registration

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def planner(config: Callable[..., ConsumerConfig]) -> Iterator[Callable[..., Planner]]:
    """Start planners of the test's group: ``planner("topic", handover=1)``."""

    def make(
        topic: str,
        *,
        handover: float = 20,
        seen: dict[str, Any] = INITIAL,
        application: int | None = None,
        commits: bool = True,
        **settings: object,
    ) -> Planner:
        options = SourceOptions.parse({"group.id": "g", "zookeeper.connect": "localhost:1", "subscribe": topic})
        return create_planner(
            dataclasses.replace(
                options,
                consumer=config(**settings),
                revoke_timeout_s=handover,
                unavailable_timeout_s=5.0,
                commits=commits,
            ),
            seen,
            application=application,
        )

    def start(topic: str, **settings: Any) -> Planner:
        one = create(topic, **settings)
        one.start()
        return one

    with started(make, Planner.close) as create:
        yield start


def expire(planner: Planner, cluster: Cluster) -> int:
    """Expire the ZooKeeper session of a planner's member; return the session id."""
    assert isinstance(planner.member.group_member, GroupMember)
    session = planner.member.group_member.session._client.client_id
    return expire_session(cluster.zookeeper_connect, session)


def owned_by(zk: KazooClient, group: str, topic: str, name: str) -> list[int]:
    return [partition for partition, owner in owners(zk, group, topic).items() if owner == f"{group}_{name}-0"]


def test_plan_covers_group_offset_to_log_end(
    zkconsumer_cluster: Cluster, planner: Callable[..., Planner], topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    one = planner(name)
    first = one.plan(INITIAL)
    assert from_offset(first) == {(name, 0): (0, 10), (name, 1): (0, 0)}
    assert stored(zk, group, name) == {0: "0", 1: "0"}
    one.finish_batch(first)
    assert stored(zk, group, name) == {0: "10", 1: "0"}
    assert one.plan(first) is first
    produce(admin, name, 0, numbers(10, 15))
    produce(admin, name, 1, numbers(0, 5))
    second = wait_for(lambda: (offset := one.plan(first)) is not first and offset)
    assert from_offset(second) == {(name, 0): (10, 15), (name, 1): (0, 5)}
    for _ in range(2):
        one.finish_batch(first)
        one.finish_batch(second)
    assert stored(zk, group, name) == {0: "15", 1: "5"}


def test_revoked_partition_continues_after_batch(
    zkconsumer_cluster: Cluster,
    planner: Callable[..., Planner],
    consumer: Callable[..., ZookeeperConsumerConnector],
    topic: Topics,
    group: str,
    zk: KazooClient,
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 10))
    one = planner(name, consumer_id="a")
    first = one.plan(INITIAL)
    other = consumer(consumer_id="b", rebalance_max_retries=1000)
    streams = in_thread(lambda: other.create_message_streams({name: 1})[name])
    wait_for(
        lambda: one.member.tracker.states()[TopicPartition(name, 1)] is PartitionState.REVOKING,
        what="the member is asked for it",
    )
    for number in range(2):
        produce(admin, name, number, numbers(10, 20))
    # A revoked partition is not planned again; the other partition is.
    second = wait_for(lambda: list(from_offset(offset := one.plan(first))) == [(name, 0)] and offset)
    assert from_offset(second) == {(name, 0): (10, 20)}
    assert owned_by(zk, group, name, "a") == [0, 1]
    one.finish_batch(first)
    [stream] = streams.result()
    wait_until_equal(lambda: (owned_by(zk, group, name, "a"), owned_by(zk, group, name, "b")), ([0], [1]))
    assert stored(zk, group, name) == {0: "10", 1: "10"}
    assert next(stream).offset == 10
    assert one.latest()["rereadRecords"] == 0


@pytest.fixture
def held(topic: Topics, group: str, zk: KazooClient) -> tuple[str, str]:
    """A topic whose partition is owned by another member, and the path of the owner znode."""
    name = topic()
    path = f"/consumers/{group}/owners/{name}/0"
    zk.create(path, b"someone-else-0", makepath=True)
    return name, path


#: Settings with which a JVM member would fail after a short time.
SHORT_RETRIES = {
    "rebalance_max_retries": 1,
    "rebalance_backoff_ms": 100,
    "zookeeper_session_timeout_ms": 2000,
    "zookeeper_connection_timeout_ms": 20_000,
}


def test_planner_start_outlasts_jvm_retries(
    planner: Callable[..., Planner], held: tuple[str, str], zk: KazooClient
) -> None:
    name, path = held
    starting = in_thread(lambda: planner(name, **SHORT_RETRIES))
    with pytest.raises(AssertionError, match="has not returned"):
        starting.result(4)
    zk.delete(path)
    assert starting.result().member.tracker.states().keys() == {(name, 0)}


def test_planner_start_fails_if_never_released(planner: Callable[..., Planner], held: tuple[str, str]) -> None:
    name, path = held
    begun = time.monotonic()
    with pytest.raises(ConsumerRebalanceFailedError, match=path):
        planner(name, handover=1, **SHORT_RETRIES)
    assert time.monotonic() - begun >= 6, "must wait for clusterUnavailableTimeout plus revokeTimeout"


def test_planner_waits_for_owner_of_other_strategy(
    planner: Callable[..., Planner], topic: Topics, group: str, zk: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    newcomer, owner = f"{group}_a-0", f"{group}_b-0"

    def flink_gives_it_to_the_owner(name: str) -> bool:
        return assign_flink({name: [0]}, {name: [newcomer, owner]})[TopicPartition(name, 0)] == owner

    name = next(name for name in iter(topic, None) if flink_gives_it_to_the_owner(name))
    zk.create(f"/consumers/{group}/ids/{group}_b", Registration.static({name: 1}).to_json(), makepath=True)
    zk.create(f"/consumers/{group}/owners/{name}/0", owner.encode(), makepath=True)
    starting = in_thread(lambda: planner(name, consumer_id="a", **SHORT_RETRIES))
    with pytest.raises(AssertionError, match="has not returned"):
        starting.result(4)
    assert "assignment_strategy_mismatch" in caplog.text
    zk.delete(f"/consumers/{group}/owners/{name}/0")
    assert starting.result().member.tracker.states().keys() == {(name, 0)}


def test_batch_beyond_revoke_timeout_is_not_committed(
    zkconsumer_cluster: Cluster,
    planner: Callable[..., Planner],
    consumer: Callable[..., ZookeeperConsumerConnector],
    topic: Topics,
    group: str,
    zk: KazooClient,
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 10))
    one = planner(name, consumer_id="a", handover=0.3)
    first = one.plan(INITIAL)
    [stream] = consumer(consumer_id="b").create_message_streams({name: 1})[name]
    assert owned_by(zk, group, name, "b") == [1]
    assert stored(zk, group, name) == {0: "0", 1: "0"}
    assert one.latest()["rereadRecords"] == 10
    assert next(stream).offset == 0
    one.finish_batch(first)
    assert stored(zk, group, name) == {0: "10", 1: "0"}


def test_join_waits_for_replayed_batch(
    zkconsumer_cluster: Cluster,
    planner: Callable[..., Planner],
    consumer: Callable[..., ZookeeperConsumerConnector],
    topic: Topics,
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 10))
    replayed = offset_json({TopicPartition(name, number): (0, 10) for number in range(2)})
    one = planner(name, consumer_id="a", handover=1, seen=replayed)
    one.start_batch(replayed)
    consumer(consumer_id="b").create_message_streams({name: 1})
    assert one.latest()["rereadRecords"] == 10


def test_planner_without_commits_resumes_from_checkpoint(
    zkconsumer_cluster: Cluster, planner: Callable[..., Planner], topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    one = planner(name, commits=False)
    first = one.plan(INITIAL)
    one.finish_batch(first)
    assert one.plan(first) is first
    assert owners(zk, group, name).keys() == {0, 1}
    one.close()
    assert stored(zk, group, name) == {}
    produce(admin, name, 0, numbers(10, 15))
    again = planner(name, commits=False, seen=first)
    again.finish_batch(first)
    second = again.plan(first)
    assert from_offset(second) == {(name, 0): (10, 15), (name, 1): (0, 0)}
    assert stored(zk, group, name) == {}


def test_session_expiry_during_batch_loses_nothing(
    zkconsumer_cluster: Cluster, planner: Callable[..., Planner], topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 10))
    one = planner(name, consumer_id="a")
    first = one.plan(INITIAL)
    member = one.member.group_member
    assert isinstance(member, GroupMember)
    rebalances = member.rebalances
    session = expire(one, zkconsumer_cluster)
    wait_for(lambda: member.rebalances > rebalances and len(member.assignment) == 2)
    assert member.session.session_id != session
    assert one.plan(first) is first  # the records of the batch are not planned again
    one.finish_batch(first)
    assert stored(zk, group, name) == {0: "10", 1: "10"}
    produce(admin, name, 0, numbers(10, 20))
    second = wait_for(lambda: (offset := one.plan(first)) is not first and offset)
    assert from_offset(second) == {(name, 0): (10, 20), (name, 1): (10, 10)}


def test_bounded_plan_ends_at_first_log_ends(
    zkconsumer_cluster: Cluster, planner: Callable[..., Planner], topic: Topics
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    one = planner(name)
    one.prepare_for_available_now()
    first = one.plan(INITIAL)
    produce(admin, name, 0, numbers(10, 20))
    assert from_offset(first) == {(name, 0): (0, 10)}
    one.finish_batch(first)
    assert one.plan(first) is first


def test_bounded_plan_survives_session_expiry(
    zkconsumer_cluster: Cluster, planner: Callable[..., Planner], topic: Topics
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    one = planner(name)
    one.prepare_for_available_now()
    first = one.plan(INITIAL, 10)
    one.finish_batch(first)
    expire(one, zkconsumer_cluster)
    wait_for(lambda: not one.member.tracker.positions(), what="the partition is given up")
    second = one.plan(first, 10)
    assert from_offset(second) == {(name, 0): (10, 20)}


def test_closed_planner_commits_only_finished_batches(
    zkconsumer_cluster: Cluster, planner: Callable[..., Planner], topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    one = planner(name, handover=60)
    first = one.plan(INITIAL)
    one.finish_batch(first)
    produce(admin, name, 0, numbers(10, 20))
    wait_for(lambda: one.plan(first) is not first)
    in_thread(one.close).result(5)
    assert stored(zk, group, name) == {0: "10"}
    assert owners(zk, group, name) == {}


def test_second_query_of_application_is_logged(
    planner: Callable[..., Planner], topic: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    def warned() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        return [text for text in found if "duplicate_query_detected" in text]

    name = topic(partitions=2)
    planner(name, application=7)
    planner(name, application=8)
    assert warned() == []
    planner(name, application=7)
    [text] = warned()
    assert "-spark7" in text
    assert "-spark8" not in text


def test_ending_query_without_partitions_names_their_owner(
    planner: Callable[..., Planner], topic: Topics, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    def warned() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        return [text for text in found if "no_partitions_assigned" in text]

    name = topic()
    first, second = planner(name, consumer_id="a"), planner(name, consumer_id="b")
    assert second.plan(INITIAL) == INITIAL
    assert warned() == []
    second.prepare_for_available_now()
    assert second.plan(INITIAL) == INITIAL
    [text] = warned()
    assert f"members=['{group}_a']" in text
    first.prepare_for_available_now()
    first.plan(INITIAL)
    planner("t-missing", consumer_id="c").prepare_for_available_now()
    assert len(warned()) == 1
