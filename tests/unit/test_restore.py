"""Tests of the checks of a checkpoint when a query resumes."""

from __future__ import annotations

import logging

import pytest
from helpers.batch_offsets import offset_json

from zkconsumer import TopicPartition
from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.query_member import restored_subscription

OFFSET = offset_json({TopicPartition("t", number): (0, 10) for number in range(2)}, group="g")


@pytest.mark.parametrize(("assign", "skipped"), [('{"t":[0,1]}', []), ('{"t":[1,2]}', ["t-0"])])
def test_unassigned_partitions_of_checkpoint_are_logged(
    assign: str, skipped: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    options = SourceOptions.parse(
        {"zookeeper.connect": "127.0.0.1:1", "group.id": "g", "membership": "none", "assign": assign}
    )

    with caplog.at_level(logging.WARNING, "zkconsumer"):
        assert restored_subscription(options, OFFSET) == options.subscription

    found = [record.getMessage() for record in caplog.records if "checkpoint_partitions_ignored" in record.getMessage()]
    assert len(found) == bool(skipped)
    assert all(partition in found[0] for partition in skipped)


def test_skipped_topic_and_partition_are_both_logged(caplog: pytest.LogCaptureFixture) -> None:
    both = offset_json({TopicPartition(topic, number): (0, 10) for topic in "tu" for number in range(2)}, group="g")
    options = SourceOptions.parse(
        {"zookeeper.connect": "127.0.0.1:1", "group.id": "g", "membership": "none", "assign": '{"t":[1]}'}
    )

    with caplog.at_level(logging.WARNING, "zkconsumer"):
        restored_subscription(options, both)

    topics, partitions = [record.getMessage() for record in caplog.records]
    assert "checkpoint_topics_ignored" in topics
    assert "['u']" in topics
    assert "checkpoint_partitions_ignored" in partitions
    assert "['t-0']" in partitions


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group.id": "h"}, "belongs to group 'g', but group.id is 'h'; to change the group, use"),
        ({"subscribe": "u"}, r"subscribes to none of the topics in its checkpoint \(t\); to read only other topics,"),
        ({"whitelist": "u", "ignoreUnsubscribedTopics": "false"}, "requires the option subscribe, .* subscription: t$"),
    ],
    ids=["other group", "other topics", "filter"],
)
def test_checkpoint_of_other_query_is_rejected(changes: dict[str, str], message: str) -> None:
    common = {"zookeeper.connect": "127.0.0.1:1", "group.id": "g"}
    options = SourceOptions.parse(common | ({} if "whitelist" in changes else {"subscribe": "t"}) | changes)
    with pytest.raises(ConfigurationError, match=message):
        restored_subscription(options, OFFSET)


def test_topics_of_checkpoint_are_added_without_filter() -> None:
    options = SourceOptions.parse(
        {"zookeeper.connect": "127.0.0.1:1", "group.id": "g", "subscribe": "u", "ignoreUnsubscribedTopics": "false"}
    )
    assert restored_subscription(options, OFFSET).topics == ("u", "t")
