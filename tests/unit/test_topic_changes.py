"""Tests of deleted and re-created topics: when and how often they are reported."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from zkconsumer.broker.topics import Topic, TopicStatus
from zkconsumer.errors import BrokerUnavailableError
from zkconsumer.metadata.base import FoundTopics
from zkconsumer.metadata.bootstrap import BootstrapCluster
from zkconsumer.metadata.zookeeper import ZooKeeperCluster
from zkconsumer.spark.planning.topic_ids import TopicIds
from zkconsumer.spark.planning.topic_states import GRACE_S, TopicStates


class Brokers(BootstrapCluster):
    """Returns the topic ids that the test has set; other topics have the status ``absent``."""

    poll_interval_s = 30.0

    def __init__(self, **ids: str) -> None:
        self.ids: dict[str, str] = ids
        self.absent = TopicStatus.DELETED
        self.fails = False
        self._id_topics = cast(Any, self)

    def look_up(self, topics: Sequence[str]) -> dict[str, Topic]:
        if self.fails:
            raise BrokerUnavailableError("no broker responds")
        return {
            topic: Topic(
                topic, TopicStatus.EXISTS if topic in self.ids else self.absent, topic_id=self.ids.get(topic, "")
            )
            for topic in topics
        }


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace ``time.monotonic``; the test changes the only element of the list."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def ids_of(brokers: Brokers, *, deleted: Sequence[str] = (), **known: str) -> TopicIds:
    return TopicIds(brokers, TopicStates(known, deleted), lambda: 1)


def test_briefly_missing_topic_is_unchanged(passing: list[float]) -> None:
    brokers = Brokers(a="id-1")
    known = ids_of(brokers, a="id-1")
    assert known.check("a") == (set(), {}, set())
    brokers.ids = {}
    passing[0] += 6
    assert known.check("a") == (set(), {}, set())
    assert known.is_uncertain
    brokers.ids = {"a": "id-1"}
    passing[0] += 6
    assert known.check("a") == (set(), {}, set())
    assert not known.is_uncertain


def test_deleted_topic_is_reported_once(passing: list[float]) -> None:
    brokers = Brokers()
    known = ids_of(brokers, a="id-1")
    assert known.check("a") == (set(), {}, set())
    passing[0] += 6
    assert known.check("a") == ({"a"}, {}, set())
    assert known.states.deleted == ["a"]
    passing[0] += 6
    assert known.check("a") == (set(), {}, set())
    brokers.ids = {"a": "id-2"}
    passing[0] += 6
    assert known.check("a") == (set(), {"a": ("id-1", "id-2")}, {"a"})
    assert (known.states.deleted, known.states.ids) == ([], {"a": "id-2"})


@pytest.mark.parametrize("status", [TopicStatus.DENIED, TopicStatus.UNAVAILABLE, TopicStatus.MISSING])
def test_topic_is_deleted_only_if_confirmed(passing: list[float], status: TopicStatus) -> None:
    brokers = Brokers(a="id-1")
    known = ids_of(brokers, a="id-1")
    known.check("a")
    brokers.ids, brokers.absent = {}, status
    for _ in range(10):
        passing[0] += 60
        assert known.check("a") == (set(), {}, set())
        assert (known.states.deleted, known.states.find_replaced({"a": "id-1"})) == ([], set())
        assert known.is_uncertain == (status is TopicStatus.MISSING)
    brokers.absent = TopicStatus.DELETED
    for _ in range(2):
        passing[0] += 60
        known.check("a")
    assert known.states.deleted == ["a"]


def test_ids_without_common_part_are_equal(passing: list[float]) -> None:
    brokers = Brokers(a="")
    known = ids_of(brokers, a="id-1", b="zk-7")
    brokers.ids |= {"b": "id-9"}
    assert known.check("ab") == (set(), {}, set())
    assert known.states.ids == {"a": "id-1", "b": "id-9"}


def test_find_replaced_returns_deleted_unknown_and_recreated() -> None:
    states = TopicStates({"a": "id-1", "b": "id-2", "c": "id-3"}, ["c"])
    states.update(["a", "b", "c", "d"], {}, {"d": False}, 0)

    assert states.find_replaced({"a": "id-1", "b": "id-2"}) == {"c"}
    assert states.find_replaced({"a": "id-1", "b": "id-9"}) == {"b", "c"}
    assert states.find_replaced({"d": "id-4", "e": "id-5"}) == {"c", "d", "e"}


def test_unwanted_topic_restarts_grace_period() -> None:
    states = TopicStates({"a": "id-1"}, [])
    states.update(["a"], {}, {"a": True}, 0)
    states.update([], {}, {}, 1)

    assert states.update(["a"], {}, {"a": True}, 1000).deleted == set()
    assert states.update(["a"], {}, {"a": True}, 1000 + GRACE_S).deleted == set()
    assert states.update(["a"], {}, {"a": True}, 1000.1 + GRACE_S).deleted == {"a"}


def test_deleted_topics_keep_deletion_order() -> None:
    names = [f"topic-{number}" for number in range(20)]
    random.Random(1).shuffle(names)
    states = TopicStates(dict.fromkeys(names, "id-1"), [])
    for number, name in enumerate(names):
        for now in (100 * number, 100 * number + 50):
            states.update(names, {}, {name: True}, now)

    assert states.deleted == names


def test_failed_lookup_is_repeated(passing: list[float]) -> None:
    brokers = Brokers(a="id-2")
    brokers.fails = True
    known = ids_of(brokers, a="id-1")
    with pytest.raises(BrokerUnavailableError):
        known.check("a")
    assert not known.is_checked
    brokers.fails = False
    assert known.check("a") == (set(), {"a": ("id-1", "id-2")}, set())
    assert known.is_checked


def test_topic_deleted_in_checkpoint_is_not_reported(passing: list[float]) -> None:
    brokers = Brokers()
    known = ids_of(brokers, a="id-1", deleted=["a"])
    assert known.check("a") == (set(), {}, set())
    assert (known.states.deleted, known.is_uncertain) == (["a"], False)
    brokers.ids = {"a": "id-2"}
    passing[0] += 6
    assert known.check("a") == (set(), {"a": ("id-1", "id-2")}, {"a"})


class ZooKeeper(ZooKeeperCluster):
    """Replaces the cluster: returns the ids that the test has set, and records the topics of each look-up."""

    def __init__(self, **ids: str) -> None:
        self.ids = ids
        self.looked_up: list[list[str]] = []

    def look_up_topic_ids(self, topics: Sequence[str]) -> FoundTopics:
        self.looked_up.append(list(topics))
        found = {topic: self.ids[topic] for topic in topics if topic in self.ids}
        return FoundTopics(found, {*topics} - found.keys())


def test_deleted_topic_causes_no_reads_of_others(passing: list[float]) -> None:
    names = [f"t{number}" for number in range(100)]
    cluster = ZooKeeper(**dict.fromkeys(names, "zk-1"))
    known = TopicIds(cluster, TopicStates({}, ()), lambda: 1)
    known.check(names)
    del cluster.ids["t7"]
    known._discoveries = lambda: 2
    for _ in range(1000):  # 100 seconds
        known.check(names)
        passing[0] += 0.1
    assert known.states.deleted == ["t7"]
    assert [len(found) for found in cluster.looked_up[:2]] == [100, 100]
    assert {tuple(found) for found in cluster.looked_up[2:]} == {("t7",)}
    assert len(cluster.looked_up) < 40, "every 0.5 seconds until it counts as deleted, then every 5 seconds"
    cluster.ids["t7"] = "zk-2"
    passing[0] += 6
    assert known.check(names).recreated == {"t7": ("zk-1", "zk-2")}


def test_forgotten_topic_stays_replaced_in_old_batches(passing: list[float]) -> None:
    brokers = Brokers(b="id-2")
    known = ids_of(brokers, a="id-1", b="id-2")
    known.check("ab")
    passing[0] += 6
    assert known.check("ab").deleted == {"a"}
    known.states.forget("a")
    assert known.states.deleted == []
    assert known.states.ids == {"b": "id-2"}
    assert known.states.find_replaced({"a": "id-1", "b": "id-2"}) == {"a"}
