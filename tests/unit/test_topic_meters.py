"""Tests of the meters of topics."""

from __future__ import annotations

from zkconsumer.metrics import Kind, Metric, Metrics, TopicMeters


def test_topic_meters_count_each_topic_and_all() -> None:
    metrics, metric = Metrics(), Metric("group", "Type", "EventsPerSec", Kind.METER, "[topic]", "Events.")
    meters = TopicMeters(metrics, metric, clientId="c")
    assert metrics.snapshot() == {}
    for topic, count in (("a", 1), ("b", 20), ("a", 300)):
        meters.mark(topic, count)

    assert {str(name): values["Count"] for name, values in metrics.snapshot().items()} == {
        "group:type=Type,name=EventsPerSec,clientId=c": 321,
        "group:type=Type,name=EventsPerSec,clientId=c,topic=a": 301,
        "group:type=Type,name=EventsPerSec,clientId=c,topic=b": 20,
    }
