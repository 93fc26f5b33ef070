"""Tests with znodes that other clients have written, deleted or left behind."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import pytest
from helpers.aliases import Configs, Consumers, Loads, Topics
from helpers.producing import numbers, produce
from helpers.reading import take, values
from helpers.threads import in_thread
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, owners, stored
from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError

from zkconsumer import ConsumerConfig, TopicPartition, Whitelist, create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.errors import ClosedError, ConsumerRebalanceFailedError
from zkconsumer.tools import common

from .conftest import GIVE_UP_MS
from .faults import Cable, Member, Peer, wait_until_all_is_read

Members = Callable[..., Member]

UNREADABLE = {
    "empty": b"",
    "text": b"not json",
    "binary": b"\xff\xfe\x00\x01",
    "list": b"[]",
    "number": b"1",
    "no subscription": b'{"version":1,"pattern":"static"}',
    "subscription is null": b'{"version":1,"subscription":null,"pattern":"static"}',
    "no pattern": b'{"version":1,"subscription":{}}',
    "no streams": b'{"version":1,"subscription":{"t":0},"pattern":"static"}',
    "infinitely many streams": b'{"version":1,"subscription":{"t":1e999},"pattern":"static"}',
    "a billion streams": b'{"version":1,"subscription":{"t":1000000000},"pattern":"static"}',
    "deeply nested": b"[" * 100_000,
}


@pytest.fixture
def peer(cluster: DevCluster, group: str) -> Iterator[Peer]:
    """Return another group member that consists of znodes; its id sorts before the ids of the tested members."""
    with Peer(cluster, group, "a-peer") as peer:
        yield peer


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_unreadable_registration_keeps_owned_partitions(
    content: bytes,
    cluster: DevCluster,
    member: Members,
    topic: Topics,
    peer: Peer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic(partitions=2)
    one = member({name: 1}, consumer_id="b")
    with caplog.at_level(logging.INFO, "zkconsumer"):
        path = peer.register(content)
        wait_for(lambda: one.core.unbalanced_since is not None, what="the member reports that it is unbalanced")
    assert path in caplog.text
    produce(cluster.admin, name, 1, numbers(0, 10))
    wait_for(lambda: one.count == 10)
    assert one.owned == [0, 1]
    peer.client.delete(path)
    wait_for(lambda: one.core.unbalanced_since is None, what="the member is balanced again")
    one.leave()


def test_repaired_registration_gets_its_share(member: Members, topic: Topics, peer: Peer) -> None:
    name = topic(partitions=4)
    one = member({name: 1}, consumer_id="b", zookeeper_sync_time_ms=30_000)
    path = peer.register(b"{")
    wait_for(lambda: one.core.unbalanced_since is not None, what="the member reports that it is unbalanced")
    assert one.owned == [0, 1, 2, 3]
    peer.client.set(path, json.dumps({"subscription": {name: 1}, "pattern": "static"}).encode())
    wait_for(lambda: one.owned == [2, 3], what="the partitions of the other member are released")


def test_first_rebalance_names_unreadable_registration(
    config: Configs, topic: Topics, peer: Peer, zk: KazooClient, group: str
) -> None:
    path = peer.register(b"not json")
    one = create_consumer(config(rebalance_max_retries=1, zookeeper_session_timeout_ms=GIVE_UP_MS))
    with pytest.raises(ConsumerRebalanceFailedError, match=f"{path}.*not json"):
        one.create_message_streams({topic(): 1})
    assert members(zk, group) == [peer.consumer_id]


FILTERS = {
    "untranslatable": "[a-z&&[^t]]+",
    "exponential": r"([\\w-]|[\\w-]{2})+[.]x|never",
    "very deep": "(" * 5000 + "t" + ")" * 5000,
    "many repetitions": "((a{1000}){1000}){1000}",
}


@pytest.mark.parametrize("expression", FILTERS.values(), ids=FILTERS.keys())
def test_unusable_filter_blocks_new_claims(
    expression: str,
    cluster: DevCluster,
    member: Members,
    topic: Topics,
    peer: Peer,
    group: str,
    zk: KazooClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic(partitions=2)
    one = member({name: 1}, consumer_id="b")
    with caplog.at_level(logging.INFO, "zkconsumer"):
        path = peer.register(b'{"subscription":{"%s":1},"pattern":"white_list"}' % expression.encode())
        wait_for(lambda: one.core.unbalanced_since is not None, what="the member reports that it is unbalanced")
    [message, *_] = [text for record in caplog.records if path in (text := record.getMessage())]
    assert len(message) < 1500
    cluster.admin.create_partitions(name, 4)
    produce(cluster.admin, name, 0, numbers(0, 10))
    one.wait_for_more(10 - one.count)
    assert one.owned == sorted(owners(zk, group, name)) == [0, 1]
    peer.close()
    wait_for(lambda: one.owned == [0, 1, 2, 3], what="all partitions are claimed")


def test_invalid_offset_fails_first_rebalance(config: Configs, topic: Topics, group: str, zk: KazooClient) -> None:
    name = topic(partitions=2)
    path = f"/consumers/{group}/offsets/{name}/1"
    zk.create(path, b"1.5", makepath=True)
    one = create_consumer(config(rebalance_max_retries=1, zookeeper_session_timeout_ms=GIVE_UP_MS))
    with pytest.raises(ConsumerRebalanceFailedError) as caught:
        one.create_message_streams({name: 1})
    assert path in str(caught.value)
    assert zk.get(path)[0] == b"1.5"
    assert (members(zk, group), owners(zk, group, name)) == ([], {})


def test_offset_of_kafka_0_7_is_ignored(
    cluster: DevCluster, member: Members, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=1)
    produce(cluster.admin, name, 0, numbers(0, 10))
    path = f"/consumers/{group}/offsets/{name}"
    zk.create(f"{path}/0-0", b"7", makepath=True)  # znode name: broker and partition
    zk.create(f"{path}/0", b"4")
    one = member({name: 1})
    one.wait_for_more(6)
    one.leave()
    assert (zk.get(f"{path}/0-0")[0], zk.get(f"{path}/0")[0]) == (b"7", b"10")


def test_invalid_offset_does_not_block_other_member(
    member: Members, topic: Topics, peer: Peer, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=2)
    peer.register({name: 1})
    one = member({name: 1}, consumer_id="b")
    assert one.owned == [1]
    path = f"/consumers/{group}/offsets/{name}/0"
    zk.create(path, b"garbage", makepath=True)
    peer.client.delete(peer.paths.registration(peer.consumer_id))
    wait_for(lambda: one.core.unbalanced_since is not None, what="the start offset of partition 0 cannot be determined")
    peer.register({name: 1})
    wait_for(lambda: one.core.unbalanced_since is None, what="partition 0 is no longer assigned")
    assert list(owners(zk, group, name)) == [1]


def test_corrected_offset_is_used(
    cluster: DevCluster, member: Members, topic: Topics, peer: Peer, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=2)
    produce(cluster.admin, name, 0, numbers(0, 100))
    peer.register({name: 1})
    one = member({name: 1}, consumer_id="b")
    path = f"/consumers/{group}/offsets/{name}/0"
    zk.create(path, b"garbage", makepath=True)
    peer.client.delete(peer.paths.registration(peer.consumer_id))
    wait_for(lambda: one.core.unbalanced_since is not None, what="the start offset of partition 0 cannot be determined")
    zk.set(path, b"90\n")
    wait_for(lambda: one.count == 10, what="the remaining records are read")
    assert values(one.seen) == numbers(90, 100)


def test_highest_offset_is_out_of_range(
    cluster: DevCluster, member: Members, topic: Topics, group: str, zk: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(partitions=1)
    produce(cluster.admin, name, 0, numbers(0, 10))
    zk.create(f"/consumers/{group}/offsets/{name}/0", b"9223372036854775807", makepath=True)
    one = member({name: 1})
    one.wait_for_more(10)
    assert "offset_out_of_range" in caplog.text
    one.leave()
    assert stored(zk, group, name) == {0: "10"}


def test_owner_overwrites_invalid_offset(
    cluster: DevCluster, member: Members, topic: Topics, peer: Peer, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=2)
    for number in range(2):
        produce(cluster.admin, name, number, numbers(0, 10))
    one = member({name: 1}, consumer_id="b")
    wait_until_equal(lambda: stored(zk, group, name), {0: "10", 1: "10"})
    zk.set(f"/consumers/{group}/offsets/{name}/0", b"garbage")
    produce(cluster.admin, name, 0, numbers(10, 20))
    wait_until_equal(lambda: stored(zk, group, name), {0: "20", 1: "10"}, 5)
    zk.set(f"/consumers/{group}/offsets/{name}/0", b"garbage")
    peer.register({name: 1})
    wait_for(lambda: one.owned == [1], 5, what="partition 0 is handed over")


def test_deleted_registration_is_re_created(
    member: Members, load: Loads, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=2)
    load(name, 2)
    one = member({name: 1})
    for _ in range(5):
        zk.delete(f"/consumers/{group}/ids/{one.core.consumer_id}")
        wait_until_equal(lambda: members(zk, group), [one.core.consumer_id])
        one.wait_for_more(50)
    assert one.owned == [0, 1]


def test_deleted_group_is_re_created_without_loss(
    cluster: DevCluster, member: Members, load: Loads, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    both = [member({name: 1}, consumer_id=i) for i in "ab"]
    for _ in range(10):
        try:
            zk.delete(f"/consumers/{group}", recursive=True)
        except NotEmptyError:
            pass  # the members have already started to re-create the znodes
        wait_until_equal(lambda: members(zk, group), sorted(one.core.consumer_id for one in both))
        for one in both:
            one.wait_for_more(50)
    writer.stop()
    wait_until_all_is_read(cluster, name, 4, both)


def test_deleted_owner_znode_is_re_created(
    member: Members, load: Loads, topic: Topics, peer: Peer, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=4)
    load(name, 4)
    one = member({name: 1}, consumer_id="b")
    for number in range(4):
        zk.delete(f"/consumers/{group}/owners/{name}/{number}")
    peer.register({name: 1})
    wait_until_equal(lambda: sorted(owners(zk, group, name)), [2, 3])
    wait_until_equal(lambda: one.owned, [2, 3])  # the offsets are read after the znodes are created
    one.wait_for_more(50)


@pytest.fixture
def aside(cluster: DevCluster, zk: KazooClient, unique: Callable[[str], str]) -> str:
    """Return the path of a chroot with copies of the brokers' znodes, which tests can corrupt without side effects."""
    root = f"/{unique('chroot')}"
    for node in zk.get_children("/brokers/ids"):
        zk.create(f"{root}/brokers/ids/{node}", zk.get(f"/brokers/ids/{node}")[0], makepath=True)
    zk.create(f"{root}/brokers/topics", b"")
    return root


def copy_topic(zk: KazooClient, aside: str, name: str) -> None:
    zk.create(f"{aside}/brokers/topics/{name}", zk.get(f"/brokers/topics/{name}")[0])


BROKERS = {
    "text": b"not json",
    "list": b"[1]",
    "empty": b"",
    "no port": b'{"host":"h"}',
    "port too large": b'{"host":"127.0.0.1","port":99999,"version":1}',
    "port is negative": b'{"host":"127.0.0.1","port":-1,"version":4,"endpoints":[]}',
    "endpoint without port": b'{"version":4,"endpoints":["PLAINTEXT://h"],"host":null,"port":-1}',
    "TLS only": b'{"version":4,"endpoints":["SSL://127.0.0.1:9093"],"host":null,"port":-1}',
    "dead": b'{"host":"127.0.0.1","port":1,"version":1}',
    "port is infinite": b'{"host":"127.0.0.1","port":1e999,"version":1}',
    "version is infinite": b'{"host":"127.0.0.1","port":1,"version":1e999}',
    "no such host": b'{"host":"there-is-no-such-host.invalid","port":9092,"version":1}',
    "host is no name": b'{"host":"\\u0000","port":9092,"version":1}',
}


@pytest.mark.parametrize("content", BROKERS.values(), ids=BROKERS.keys())
def test_invalid_broker_znode_does_not_hide_others(
    content: bytes, cluster: DevCluster, consumer: Consumers, topic: Topics, zk: KazooClient, aside: str
) -> None:
    name = topic(partitions=2)
    copy_topic(zk, aside, name)
    zk.create(f"{aside}/brokers/ids/99", content)
    for number in range(2):
        produce(cluster.admin, name, number, numbers(0, 10))
    one = consumer(zookeeper_connect=f"{cluster.zookeeper.connect}{aside}")
    [stream] = one.create_message_streams({name: 1})[name]
    assert len(take(stream, 20)) == 20


TOPICS = {
    "text": b"not json",
    "empty": b"",
    "list": b"[]",
    "null": b'{"partitions":null}',
    "words": b'{"partitions":{"x":[0]}}',
    "list of partitions": b'{"partitions":[0.9]}',
    "alias": b'{"partitions":{"0":[0],"00":[0]}}',
    "negative": b'{"partitions":{"-1":[0]}}',
}


@pytest.mark.parametrize("content", TOPICS.values(), ids=TOPICS.keys())
def test_unreadable_topic_znode_is_named(
    content: bytes,
    cluster: DevCluster,
    member: Members,
    topic: Topics,
    zk: KazooClient,
    aside: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic(partitions=2)
    copy_topic(zk, aside, name)
    one = member({name: 1}, zookeeper_connect=f"{cluster.zookeeper.connect}{aside}")
    path = f"/brokers/topics/{name}"
    good = zk.get(aside + path)[0]
    zk.set(aside + path, content)
    wait_for(lambda: one.core.unbalanced_since is not None, what="the member reports that it is unbalanced")
    assert path in caplog.text
    produce(cluster.admin, name, 0, numbers(0, 10))
    wait_for(lambda: one.count == 10)
    zk.set(aside + path, good)
    wait_for(lambda: one.core.unbalanced_since is None, what="the member is balanced again")
    assert one.connector.commit_offsets()[TopicPartition(name, 0)] == 10


def test_invalid_topic_names_are_not_claimed(
    cluster: DevCluster,
    consumer: Consumers,
    topic: Topics,
    zk: KazooClient,
    aside: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic(partitions=1)
    produce(cluster.admin, name, 0, numbers(0, 10))
    copy_topic(zk, aside, name)
    for bad in ("t" * 40_000, "t with blanks", "t\u202e"):
        zk.create(f"{aside}/brokers/topics/{bad}", b'{"partitions":{"0":[0]}}')
    one = consumer(zookeeper_connect=f"{cluster.zookeeper.connect}{aside}")
    [stream] = one.create_message_streams_by_filter(Whitelist("t.*"))
    assert values(take(stream, 10)) == numbers(0, 10)
    assert one.assignment.keys() == {TopicPartition(name, 0)}
    [event] = [record.getMessage() for record in caplog.records if "topic_names_invalid" in record.getMessage()]
    assert "3 invalid names" in event
    assert len(event) < 1000


def test_skipped_broker_is_logged_once(
    cluster: DevCluster, topic: Topics, zk: KazooClient, aside: str, caplog: pytest.LogCaptureFixture
) -> None:
    zk.create(f"{aside}/brokers/ids/99", b'{"host":"h","port":1e999,"version":1}')
    config = ConsumerConfig.from_dict({"group.id": "g", "zookeeper.connect": f"{cluster.zookeeper.connect}{aside}"})
    with common.access(config) as access:
        assert all(len(access.cluster.brokers()) == len(cluster.brokers) for _ in range(3))
    [event] = [record.getMessage() for record in caplog.records if "brokers_skipped" in record.getMessage()]
    assert "/brokers/ids/99" in event


# ---- owner znodes of other clients ------------------------------------------------------------------


OWNERS = {
    "thread": (b"other-0", "by consumer 'other' (the znode contains 'other-0')"),
    "bare": (b"other", "by another client (the znode contains 'other')"),
    "escapes": (b"\x1b[31m\nforged-0", "by consumer '\\x1b[31m\\nforged' (the znode contains"),
    "binary": (b"\xff", "by another client"),
    "long": (b"o" * 100_000, "(100000 characters)"),
}


@pytest.mark.parametrize(("content", "described"), OWNERS.values(), ids=OWNERS.keys())
def test_blocked_claim_shows_content_of_owner_znode(
    content: bytes, described: str, config: Configs, topic: Topics, peer: Peer, group: str
) -> None:
    name = topic(partitions=1)
    path = f"/consumers/{group}/owners/{name}/0"
    peer.client.create(path, content, ephemeral=True, makepath=True)
    one = create_consumer(config(rebalance_max_retries=1, zookeeper_session_timeout_ms=GIVE_UP_MS))
    with pytest.raises(ConsumerRebalanceFailedError, match=f"{path} is still owned") as caught:
        one.create_message_streams({name: 1})
    assert described in str(caught.value)
    assert len(str(caught.value)) < 1500


def test_persistent_owner_znode_is_named(config: Configs, topic: Topics, group: str, zk: KazooClient) -> None:
    name = topic(partitions=1)
    zk.create(f"/consumers/{group}/owners/{name}/0", b"other-0", makepath=True)
    one = create_consumer(config(rebalance_max_retries=1, zookeeper_session_timeout_ms=GIVE_UP_MS))
    with pytest.raises(ConsumerRebalanceFailedError, match="is persistent, so ZooKeeper never deletes it"):
        one.create_message_streams({name: 1})


def test_client_without_thread_number_is_named(config: Configs, topic: Topics, peer: Peer, group: str) -> None:
    name = topic(partitions=2)
    peer.register({name: 1})
    for number in range(2):
        peer.own(name, number, thread_id=peer.consumer_id)
    one = create_consumer(
        config(rebalance_max_retries=3, rebalance_backoff_ms=500, zookeeper_session_timeout_ms=GIVE_UP_MS)
    )
    with pytest.raises(ConsumerRebalanceFailedError, match=f"'{peer.consumer_id}' is another kind of client"):
        one.create_message_streams({name: 1})


def test_blocked_member_examines_owners_rarely(
    cluster: DevCluster, consumer: Consumers, topic: Topics, peer: Peer, group: str
) -> None:
    name = topic(partitions=40)
    peer.register({name: 1})
    for number in range(40):
        peer.own(name, number)
    requests = bytearray()
    with Cable(cluster.zookeeper.port) as cable:
        cable.on_request = requests.extend
        one = consumer(zookeeper_connect=f"127.0.0.1:{cable.port}", rebalance_backoff_ms=200, rebalance_max_retries=99)
        starting = in_thread(lambda: one.create_message_streams({name: 1}))
        wait_for(lambda: requests.count(f"/owners/{name}/39".encode()) >= 15, what="15 claims of partitions 20 to 39")
        one.shutdown()
        with pytest.raises(ClosedError):
            starting.result()
    assert requests.count(f"/owners/{name}/7".encode()) == 1, "partition 7 is not claimed, but examined"


def test_topic_created_during_lookup_is_noticed(
    cluster: DevCluster, consumer: Consumers, topic: Topics, zk: KazooClient, aside: str
) -> None:
    name = topic(partitions=1)
    produce(cluster.admin, name, 0, numbers(0, 10))
    path = f"{aside}/brokers/topics/{name}"
    requests = []

    def appear(request: bytes) -> None:
        # The member's first request for this path finds no znode. It is created before the second request.
        if path.encode() in request:
            requests.append(request)
            if len(requests) == 2:
                copy_topic(zk, aside, name)

    with Cable(cluster.zookeeper.port) as cable:
        cable.on_request = appear
        one = consumer(zookeeper_connect=f"127.0.0.1:{cable.port}{aside}", consumer_timeout_ms=3000)
        [stream] = one.create_message_streams({name: 1})[name]
        assert values(take(stream, 10)) == numbers(0, 10)
        one.shutdown()
