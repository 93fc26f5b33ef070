"""Tests of the znodes of a member, which other members and Kafka's tools read."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.aliases import Cluster, Consumers, Topics
from helpers.producing import numbers, produce
from helpers.reading import take, values
from helpers.threads import in_thread
from helpers.waiting import wait_until_equal
from helpers.znodes import members, owners, stored
from kazoo.client import KazooClient

from zkconsumer.errors import ConfigurationError


def test_registration_has_format_of_jvm(topic: Topics, group: str, consumer: Consumers, zk: KazooClient) -> None:
    a, b = topic(), topic()
    before = int(time.time() * 1000)
    consumer(consumer_id="c").create_message_streams({b: 2, a: 1})

    data, stat = zk.get(f"/consumers/{group}/ids/{group}_c")

    found = re.fullmatch(
        rb'\{"version":1,"subscription":\{"%s":2,"%s":1\},"pattern":"static","timestamp":"(\d{13})"\}'
        % (b.encode(), a.encode()),
        data,
    )
    assert found is not None, data
    assert before <= int(found.group(1)) <= time.time() * 1000
    assert stat.ephemeralOwner != 0


def test_member_without_topics_is_registered(group: str, consumer: Consumers, zk: KazooClient) -> None:
    consumer(consumer_id="c").create_message_streams({})

    data, _ = zk.get(f"/consumers/{group}/ids/{group}_c")

    assert re.fullmatch(rb'\{"version":1,"subscription":\{\},"pattern":"static","timestamp":"\d{13}"\}', data)


def test_generated_consumer_id_has_host_time_and_hex(
    topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    connector = consumer()
    connector.create_message_streams({topic(): 1})

    [name] = members(zk, group)

    assert connector.consumer_id == name
    assert re.fullmatch(rf"{group}_{re.escape(socket.gethostname())}-\d{{13}}-[0-9a-f]{{1,8}}", name)


def test_znodes_of_reading_member(admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient) -> None:
    name = topic(2)
    produce(admin, name, 0, numbers(0, 3))
    connector = consumer(consumer_id="c")
    take(connector.create_message_streams({name: 2})[name][0], 3)
    connector.commit_offsets()

    session = zk.get(f"/consumers/{group}/ids/{group}_c")[1].ephemeralOwner
    assert session != 0
    assert owners(zk, group, name) == {0: f"{group}_c-0", 1: f"{group}_c-1"}
    for partition in (0, 1):
        assert zk.get(f"/consumers/{group}/owners/{name}/{partition}")[1].ephemeralOwner == session
    data, stat = zk.get(f"/consumers/{group}/offsets/{name}/0")
    assert (data, stat.ephemeralOwner) == (b"3", 0)
    for parent in ("", "/ids", "/owners", f"/owners/{name}", "/offsets", f"/offsets/{name}"):
        data, stat = zk.get(f"/consumers/{group}{parent}")
        assert (data, stat.ephemeralOwner) == (b"", 0)
    assert sorted(zk.get_children(f"/consumers/{group}")) == ["ids", "offsets", "owners"]


def test_znodes_are_open_to_all_members(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 3))
    connector = consumer(consumer_id="c")
    take(connector.create_message_streams({name: 1})[name][0], 3)
    connector.commit_offsets()

    for path in (f"/ids/{group}_c", f"/owners/{name}/0", f"/offsets/{name}/0", f"/owners/{name}", ""):
        [acl] = zk.get_acls(f"/consumers/{group}{path}")[0]
        assert (acl.id.scheme, acl.id.id, acl.acl_list) == ("world", "anyone", ["ALL"])


def test_shutdown_leaves_only_offsets_and_parents(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(2)
    produce(admin, name, 0, numbers(0, 3))
    connector = consumer(consumer_id="c")
    take(connector.create_message_streams({name: 1})[name][0], 3)
    connector.commit_offsets()

    connector.shutdown()

    assert members(zk, group) == []
    assert owners(zk, group, name) == {}
    assert stored(zk, group, name)[0] == "3"


def test_second_member_with_same_id_waits(topic: Topics, group: str, consumer: Consumers, zk: KazooClient) -> None:
    name = topic()
    first, second = consumer(consumer_id="c"), consumer(consumer_id="c")
    first.create_message_streams({name: 1})
    session = zk.get(f"/consumers/{group}/ids/{group}_c")[1].ephemeralOwner
    joining = in_thread(lambda: second.create_message_streams({name: 1}))

    first.shutdown()
    joining.result()

    assert members(zk, group) == [f"{group}_c"]
    assert zk.get(f"/consumers/{group}/ids/{group}_c")[1].ephemeralOwner != session
    assert owners(zk, group, name) == {0: f"{group}_c-0"}


def test_owner_znode_of_earlier_session_is_replaced(
    topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    """The old znode has the same content and is deleted later; two members could then own the partition (KAFKA-992)."""
    name = topic()
    path = f"/consumers/{group}/owners/{name}/0"
    zk.create(path, f"{group}_c-0".encode(), ephemeral=True, makepath=True)

    consumer(consumer_id="c").create_message_streams({name: 1})

    data, stat = zk.get(path)
    assert data == f"{group}_c-0".encode()
    assert stat.ephemeralOwner == zk.get(f"/consumers/{group}/ids/{group}_c")[1].ephemeralOwner


def test_deleted_registration_is_re_created(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    [stream] = consumer(consumer_id="c").create_message_streams({name: 1})[name]

    zk.delete(f"/consumers/{group}/ids/{group}_c")

    wait_until_equal(lambda: members(zk, group), [f"{group}_c"])
    produce(admin, name, 0, [b"still here"])
    assert values(take(stream, 1)) == [b"still here"]


# ---- chroot -------------------------------------------------------------------------------------------------


@pytest.fixture
def chroot(zk: KazooClient, unique: Callable[[str], str]) -> Iterator[str]:
    path = f"/{unique('chroot')}/deeper"
    zk.ensure_path(path)
    yield path
    zk.delete(path.removesuffix("/deeper"), recursive=True)


def test_group_is_below_the_chroot(
    zkconsumer_cluster: Cluster,
    admin: Any,
    topic: Topics,
    group: str,
    zk: KazooClient,
    chroot: str,
    consumer: Consumers,
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 3))
    connector = consumer(
        consumer_id="c",
        zookeeper_connect=zkconsumer_cluster.zookeeper_connect + chroot,
        bootstrap_servers=zkconsumer_cluster.bootstrap_servers,  # brokers are not registered below this chroot
    )

    [stream] = connector.create_message_streams({name: 1})[name]

    assert values(take(stream, 3)) == numbers(0, 3)
    connector.commit_offsets()
    assert zk.get(f"{chroot}/consumers/{group}/owners/{name}/0")[0] == f"{group}_c-0".encode()
    assert zk.get(f"{chroot}/consumers/{group}/offsets/{name}/0")[0] == b"3"
    assert not zk.exists(f"/consumers/{group}")


def test_missing_chroot_is_rejected_and_not_created(
    zkconsumer_cluster: Cluster, topic: Topics, consumer: Consumers, zk: KazooClient, unique: Callable[[str], str]
) -> None:
    chroot = f"/{unique('missing')}"
    connector = consumer(zookeeper_connect=zkconsumer_cluster.zookeeper_connect + chroot)

    with pytest.raises(ConfigurationError, match=f"the chroot '.*{chroot}' does not exist"):
        connector.create_message_streams({topic(): 1})

    assert not zk.exists(chroot)
