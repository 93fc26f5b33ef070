"""Topics that are created, extended, deleted or re-created, transactions, and queries with several sources."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import numbers, produce
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, owners, stored
from helpers.zookeeper import zookeeper_client
from kafka import KafkaProducer
from kazoo.client import KazooClient

from .queries import ALL_AVAILABLE, Batch, Query, check_union

pytestmark = pytest.mark.timeout(120)

Queries = Callable[..., Query]

NOW = {"availableNow": True}


def test_created_and_widened_topic_is_read_from_beginning(
    zkconsumer_cluster: Cluster,
    query: Queries,
    topic: Topics,
    unique: Callable[[str], str],
    group: str,
    zk: KazooClient,
) -> None:
    present, coming, admin = topic(), unique("t"), zkconsumer_cluster.admin
    produce(admin, present, 0, numbers(0, 10))
    one = query(f"{present}, {coming}")
    one.wait_for_records(10)
    admin.create_topic(coming, 1)
    produce(admin, coming, 0, numbers(0, 20))
    one.wait_for_records(30)
    admin.create_partitions(coming, 3)
    for number in range(3):
        produce(admin, coming, number, numbers(20, 30))
    one.wait_for_records(60)
    assert one.batches[-1].spans.keys() <= {(coming, number) for number in range(3)}
    wait_until_equal(lambda: stored(zk, group, coming), {0: "30", 1: "10", 2: "10"})
    assert stored(zk, group, present) == {0: "10"}
    admin.delete_topic(coming)


@pytest.mark.slow
def test_replay_includes_unsubscribed_topic(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, group: str, zk: KazooClient
) -> None:
    old, kept, new, admin = topic(), topic(), topic(), zkconsumer_cluster.admin
    produce(admin, old, 0, numbers(0, 10))
    produce(admin, new, 0, numbers(0, 20))

    def refuse(_batch: Batch) -> None:
        raise OSError("the sink is full")

    with pytest.raises(Exception, match="the sink is full"):
        query(f"{old},{kept}", on_batch=refuse).finish()
    one = query(f"{new},{kept}")
    one.wait_for_records(30)
    assert [batch.spans for batch in one.batches] == [{(old, 0): (0, 10, 10)}, {(new, 0): (0, 20, 20)}]
    wait_until_equal(lambda: stored(zk, group, new), {0: "20"})
    assert stored(zk, group, old) == {0: "0"}  # only its owner may commit it
    assert owners(zk, group, old) == {}


def test_topics_are_shared_by_subscribed_members(
    zkconsumer_cluster: Cluster,
    query: Queries,
    plain: Callable[..., object],
    topic: Topics,
    group: str,
    zk: KazooClient,
) -> None:
    shared, own = topic(partitions=2), topic(partitions=2)
    for name in (shared, own):
        for number in range(2):
            produce(zkconsumer_cluster.admin, name, number, numbers(0, 10))
    one = query(f"{shared},{own}")
    one.wait_for_records(40)
    [mine] = members(zk, group)
    plain(shared)
    wait_for(lambda: len(set(owners(zk, group, shared).values())) == 2)
    assert owners(zk, group, own) == {0: f"{mine}-0", 1: f"{mine}-0"}


@pytest.fixture
def transactional(zkconsumer_cluster: Cluster, unique: Callable[[str], str]) -> Iterator[KafkaProducer]:
    """A transactional producer."""
    made = KafkaProducer(
        bootstrap_servers=zkconsumer_cluster.bootstrap_servers, transactional_id=unique("tx"), linger_ms=0
    )
    made.init_transactions()
    yield made
    made.close(5)


def in_transaction(producer: KafkaProducer, topic: str, values: list[bytes], *, commit: bool) -> None:
    producer.begin_transaction()
    for value in values:
        producer.send(topic, value, partition=0)
    producer.flush()
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


@pytest.mark.slow
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_isolation_level_applies_to_queries(
    query: Queries, topic: Topics, transactional: KafkaProducer, group: str, zk: KazooClient, level: str
) -> None:
    name = topic()
    in_transaction(transactional, name, numbers(0, 10), commit=True)  # offsets 0 to 9, and a marker
    in_transaction(transactional, name, numbers(10, 20), commit=False)  # 11 to 20, and a marker
    seen = numbers(0, 10) if level == "read_committed" else numbers(0, 20)
    first = query(name, trigger=NOW, isolation_level=level)
    first.finish()
    assert [batch.column("value") for batch in first.batches] == [seen]
    wait_until_equal(lambda: stored(zk, group, name), {0: "22"})
    # The second query finds only aborted records and an open transaction.
    in_transaction(transactional, name, numbers(20, 22), commit=False)  # 22, 23, and a marker
    transactional.begin_transaction()
    transactional.send(name, b"open", partition=0).get(10)
    second = query(name, trigger=NOW, isolation_level=level)
    second.finish()
    values = [value for batch in second.batches for value in batch.column("value")]
    assert values == ([] if level == "read_committed" else [*numbers(20, 22), b"open"])
    assert stored(zk, group, name) == {0: "25" if level == "read_committed" else "26"}
    transactional.commit_transaction()
    third = query(name, trigger=NOW, isolation_level=level)
    third.finish()
    values = [value for batch in third.batches for value in batch.column("value")]
    assert values == ([b"open"] if level == "read_committed" else [])
    assert stored(zk, group, name) == {0: "27"}


def logged(checkpoint: Path) -> dict[int, list[Any]]:
    """Return the offsets of all sources in Spark's offset log, by batch."""
    files = [file for file in (checkpoint / "offsets").iterdir() if file.name.isdigit()]
    return {int(file.name): [json.loads(line) for line in file.read_text().splitlines()[2:]] for file in files}


def recreate_topic(cluster: Cluster, name: str, count: int) -> None:
    """Delete a topic, re-create it, and write ``count`` records."""
    admin = cluster.admin
    admin.delete_topic(name)
    wait_for(lambda: cluster.create_topic(name, 1) if gone(cluster, name) else None, what=f"{name} is created anew")
    produce(admin, name, 0, numbers(1000, 1000 + count))


def gone(cluster: Cluster, name: str) -> bool:
    """Return whether a topic has no znode in ZooKeeper."""
    with zookeeper_client(cluster.zookeeper_connect) as zk:
        return zk.exists(f"/brokers/topics/{name}") is None and zk.exists(f"/admin/delete_topics/{name}") is None


@pytest.mark.parametrize(
    ("running", "fails"),
    [
        (True, True),
        pytest.param(True, False, marks=pytest.mark.slow),
        pytest.param(False, True, marks=pytest.mark.slow),
        (False, False),
    ],
    ids=["running-fail", "running-go-on", "down-fail", "down-go-on"],
)
def test_re_created_topic_with_old_offsets_is_detected(
    running: bool, fails: bool, zkconsumer_cluster: Cluster, query: Queries, topic: Topics, group: str, zk: KazooClient
) -> None:
    name, other, admin = topic(), topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 50))
    one = query(f"{name},{other}", failOnDataLoss=fails)
    one.wait_for_records(50)
    wait_until_equal(lambda: stored(zk, group, name), {0: "50"})
    if not running:
        one.stop()
    recreate_topic(zkconsumer_cluster, name, 80)  # more records than were read from the deleted topic
    if not running:
        one = query(f"{name},{other}", failOnDataLoss=fails)
    if fails:
        with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS\.PARTITIONS_DELETED.*was deleted"):
            one.finish()
        return
    one.wait_for(
        lambda: one.batches and numbers(1000, 1080)[-1] in one.batches[-1].column("value"), what="the new ones"
    )
    values = [value for batch in one.batches for value in batch.column("value")]
    assert sorted(values) == sorted((numbers(0, 50) if running else []) + numbers(1000, 1080))
    wait_until_equal(lambda: stored(zk, group, name), {0: "80"})


@pytest.mark.slow
def test_deleted_topic_fails_query_with_remedy(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, other, admin = topic(), topic(), zkconsumer_cluster.admin
    for each in (name, other):
        produce(admin, each, 0, numbers(0, 10))
    one = query(f"{name},{other}")
    one.wait_for_records(20)
    admin.delete_topic(name)
    with pytest.raises(
        Exception, match=f"PARTITIONS_DELETED. topic '{name}' was deleted.*remove the topic from the subscription"
    ):
        one.finish()
    again = query(other, trigger=NOW)  # the remedy in the error message
    again.finish()


@pytest.mark.slow
def test_replay_excludes_re_created_topic(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, other, admin = topic(), topic(), zkconsumer_cluster.admin
    for each in (name, other):
        produce(admin, each, 0, numbers(0, 50))

    def refuse(_batch: Batch) -> None:
        raise OSError("the sink is full")

    with pytest.raises(Exception, match="the sink is full"):
        query(f"{name},{other}", trigger=NOW, on_batch=refuse).finish()
    recreate_topic(zkconsumer_cluster, name, 80)
    with pytest.raises(Exception, match=f"PARTITIONS_DELETED. topic '{name}' was deleted and re-created"):
        query(f"{name},{other}", trigger=NOW).finish()
    one = query(f"{name},{other}", trigger=ALL_AVAILABLE, failOnDataLoss=False)
    one.finish()
    assert [batch.spans for batch in one.batches] == [{(other, 0): (0, 50, 50)}, {(name, 0): (0, 80, 80)}]


@pytest.mark.slow
def test_offset_of_deleted_topic_is_not_used(
    zkconsumer_cluster: Cluster,
    spark: Any,
    query: Queries,
    topic: Callable[..., str],
    options: Callable[..., dict[str, str]],
    store: Callable[..., None],
    checkpoint: Path,
) -> None:
    name = topic()
    store(name, {0: 5})
    recreate_topic(zkconsumer_cluster, name, 20)
    settings = {"startingOffsets": "group", "auto_offset_reset": "largest"}
    assert spark.read.format("zkconsumer").options(**options(name, **settings)).load().count() == 20
    for membership in ("none", "group"):
        one = query(name, trigger=NOW, membership=membership, checkpoint=checkpoint / membership, **settings)
        one.finish()
        assert one.count == 20


@pytest.mark.slow
def test_pattern_survives_replaced_topic_if_allowed(
    zkconsumer_cluster: Cluster, query: Queries, unique: Callable[[str], str], group: str, zk: KazooClient
) -> None:
    stem, admin = unique("t"), zkconsumer_cluster.admin
    lost, kept, gained = (f"{stem}-{letter}" for letter in "abc")
    for name in (lost, kept):
        admin.create_topic(name, 2)
        produce(admin, name, 0, numbers(0, 10))
    settings = {"subscribe": None, "subscribePattern": f"{stem}-.", "clusterUnavailableTimeout": "60s"}
    one = query("", **settings, failOnDataLoss=False)
    one.wait_for_records(20)
    one.handle.processAllAvailable()  # now the batch is in the commit log
    admin.delete_topic(lost)
    admin.create_topic(gained, 2)
    produce(admin, gained, 1, numbers(0, 15))
    produce(admin, kept, 1, numbers(0, 5))

    def forgotten() -> bool:
        produce(admin, kept, 0, numbers(0, 1))  # for another batch
        batches = logged(one.checkpoint)
        return lost in batches[max(batches)][0].get("gone", ())

    one.wait_for(forgotten, 30, what="the topic is missed")
    end = admin.offsets(kept, 1)[0]
    one.wait_for_records(30 + end)
    wanted = {(lost, 0): (0, 10), (kept, 0): (0, end), (kept, 1): (0, 5), (gained, 1): (0, 15)}
    check_union([batch.spans for batch in one.batches], wanted)
    wait_until_equal(lambda: stored(zk, group, kept), {0: str(end), 1: "5"})
    wait_until_equal(lambda: stored(zk, group, gained), {0: "0", 1: "15"})
    assert owners(zk, group, lost) == {}
    wait_until_equal(lambda: one.state.get("owned"), 4)
    one.stop()
    produce(admin, gained, 0, numbers(0, 1))
    again = query("", **settings, failOnDataLoss=False, trigger=NOW)
    again.finish()
    assert [batch.spans for batch in again.batches] == [{(gained, 0): (0, 1, 1)}]


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_random_topic_changes_lose_nothing(
    zkconsumer_cluster: Cluster, query: Queries, unique: Callable[[str], str]
) -> None:
    """Records of existing topics are read once, unless a topic is re-created while a task reads it."""
    stem, admin = unique("t"), zkconsumer_cluster.admin
    seed = int(os.environ.get("ZKCONSUMER_CHAOS_SEED", random.randrange(1 << 20)))
    print(f"ZKCONSUMER_CHAOS_SEED={seed}")
    chance, count = random.Random(seed), itertools.count()
    there: dict[str, list[list[bytes]]] = {}  # topic -> values of each partition
    deleted: dict[str, set[bytes]] = {}  # topic -> values of its deleted predecessors
    taken_over: set[bytes] = set()  # values of re-created topics

    def write(name: str, number: int) -> None:
        values = [b"%d" % next(count) for _ in range(chance.randint(1, 50))]
        there[name][number] += values
        if name in deleted:
            taken_over.update(values)
        produce(admin, name, number, values)

    def create(name: str) -> None:
        if name not in there and gone(zkconsumer_cluster, name):
            there[name] = [[] for _ in range(chance.randint(1, 3))]
            admin.create_topic(name, len(there[name]))

    def widen(name: str) -> None:
        there[name].append([])
        admin.create_partitions(name, len(there[name]))

    def delete(name: str) -> None:
        values = {value for values in there.pop(name) for value in values}
        deleted.setdefault(name, set()).update(values)
        admin.delete_topic(name)

    create(f"{stem}-y")
    write(f"{stem}-y", 0)
    settings = {"subscribe": None, "subscribePattern": f"{stem}-.", "clusterUnavailableTimeout": "60s"}
    one = query("", **settings, failOnDataLoss=False)
    one.wait_for_records(1)
    actions: list[Callable[..., None]] = [create, create, widen, delete, *[write] * 6]
    for number in range(60):
        action = chance.choice(actions)
        name = f"{stem}-{chance.randrange(6)}"
        if name not in there or action is create:
            create(name)
        elif action is write:
            write(name, chance.randrange(len(there[name])))
        else:
            action(name)
        if not number % 5:  # spread over several batches
            before = one.count
            write(f"{stem}-y", 0)
            one.wait_for_records(before + 1)
    wanted = {value for topic in there.values() for values in topic for value in values}

    def seen() -> Counter[bytes]:
        return Counter(value for batch in one.batches for value in batch.column("value"))

    one.wait_for(lambda: wanted <= seen().keys(), 120, what=f"all of {len(wanted)} numbers")
    write(f"{stem}-y", 0)  # for a batch after the last one
    one.wait_for(lambda: there[f"{stem}-y"][0][-1] in seen())
    assert seen().keys() <= wanted.union(*deleted.values(), *there[f"{stem}-y"])
    assert {value for value, times in seen().items() if times > 1} <= taken_over


@pytest.mark.slow
@pytest.mark.parametrize("reads_on", [False, True], ids=["quiet", "reads-on"])
def test_pattern_fails_on_deleted_topic(
    reads_on: bool, zkconsumer_cluster: Cluster, query: Queries, unique: Callable[[str], str]
) -> None:
    stem, admin = unique("t"), zkconsumer_cluster.admin
    lost, kept, gained = (f"{stem}-{letter}" for letter in "abc")
    for name in (lost, kept):
        admin.create_topic(name)
        produce(admin, name, 0, numbers(0, 10))
    settings = {"subscribe": None, "subscribePattern": f"{stem}-."}
    one = query("", **settings)
    one.wait_for_records(20)
    one.handle.processAllAvailable()
    admin.delete_topic(lost)
    admin.create_topic(gained)
    if reads_on:
        produce(admin, kept, 0, numbers(10, 15))
        one.wait_for_records(25)
    text = rf"KAFKA_DATA_LOSS\.PARTITIONS_DELETED. topic '{lost}' was deleted"
    with pytest.raises(Exception, match=text):
        one.finish(30)
    produce(admin, gained, 0, numbers(0, 15))
    again = query("", **settings, trigger=NOW)
    with pytest.raises(Exception, match=text):
        again.finish()
    assert again.begun == []
    lenient = query("", **settings, failOnDataLoss=False, trigger=NOW)
    lenient.finish()
    assert [batch.spans for batch in lenient.batches] == [{(gained, 0): (0, 15, 15)}]
    query("", **settings, trigger=NOW).finish()  # the checkpoint contains the deletion


# ---- several sources in one query ------------------------------------------------------------------------


@pytest.mark.slow
def test_union_with_idle_source_reads_once(
    zkconsumer_cluster: Cluster,
    spark: Any,
    topic: Topics,
    options: Callable[..., dict[str, str]],
    checkpoint: Path,
    group: str,
    zk: KazooClient,
) -> None:
    busy, quiet, admin = topic(partitions=2), topic(), zkconsumer_cluster.admin

    def run() -> Query:
        busy_frame, quiet_frame = (
            spark.readStream.format("zkconsumer").options(**options(name, maxOffsetsPerTrigger=limit)).load()
            for name, limit in ((busy, 30), (quiet, 10))
        )
        one = Query(busy_frame.union(quiet_frame), checkpoint, trigger=ALL_AVAILABLE)
        one.finish()
        return one

    batches = []
    for busy_has, quiet_has in ((50, 0), (50, 15), (100, 25)):
        for name, number, end in ((busy, 0, busy_has), (busy, 1, busy_has), (quiet, 0, quiet_has)):
            there = admin.offsets(name, number + 1)[number]
            if there < end:
                produce(admin, name, number, numbers(there, end))
        batches += run().batches
        ends = {0: str(busy_has), 1: str(busy_has)}, {0: str(quiet_has)}
        wait_until_equal(lambda: (stored(zk, group, busy), stored(zk, group, quiet)), ends)
    check_union([batch.spans for batch in batches], {(busy, 0): (0, 100), (busy, 1): (0, 100), (quiet, 0): (0, 25)})
    assert max(batch.table.num_rows for batch in batches) <= 30 + 10
    assert {len(sources) for sources in logged(checkpoint).values()} == {2}


@pytest.mark.slow
@pytest.mark.parametrize("joined", [False, True], ids=["union", "join"])
def test_source_used_twice_is_planned_once(
    joined: bool,
    zkconsumer_cluster: Cluster,
    spark: Any,
    topic: Topics,
    options: Callable[..., dict[str, str]],
    checkpoint: Path,
    group: str,
    zk: KazooClient,
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    frame = spark.readStream.format("zkconsumer").options(**options(name)).load()
    both = frame.union(frame)
    if joined:  # if columns are renamed, Spark plans one source
        renamed = frame.selectExpr("partition AS p", "offset AS o")
        both = renamed.join(renamed, ["p", "o"]).selectExpr("p AS partition", "o AS offset")
    for first in (0, 20):
        for number in range(2):
            produce(admin, name, number, numbers(first, first + 20))
        one = Query(both, checkpoint, trigger=NOW)
        one.finish()
        times = 1 if joined else 2
        assert one.offsets == dict.fromkeys(((p, o) for p in range(2) for o in range(first, first + 20)), times)
        assert one.state["owned"] == 2
        wait_until_equal(lambda: stored(zk, group, name), dict.fromkeys(range(2), str(first + 20)))
    for number, first in ((0, 0), (1, 20)):  # Spark writes the offset once per use of the source
        offset = logged(checkpoint)[number][0]
        assert logged(checkpoint)[number] == [offset, offset]
        assert offset["ranges"] == {name: {"0": [first, first + 20], "1": [first, first + 20]}}
    versions = [zk.get(f"/consumers/{group}/offsets/{name}/{number}")[1].version for number in range(2)]
    assert versions == [2, 2], "one commit for the start offset and one per batch"


@pytest.mark.slow
def test_self_join_without_membership_has_both_sides(
    zkconsumer_cluster: Cluster,
    spark: Any,
    topic: Topics,
    options: Callable[..., dict[str, str]],
    checkpoint: Path,
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 20))
    # Spark plans two sources, which would share the partitions if they were members of the group.
    wanted = options(name, membership="none", startingOffsets="earliest")
    frame = spark.readStream.format("zkconsumer").options(**wanted).load()
    pairs = frame.alias("a").join(frame.alias("b"), ["topic", "partition", "offset"]).select("partition", "offset")
    one = Query(pairs, checkpoint, trigger=NOW)
    one.finish()
    assert one.offsets == dict.fromkeys(((p, o) for p in range(2) for o in range(20)), 1)
