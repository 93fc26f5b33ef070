"""Tests of the output of tasks while a broker dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from helpers.aliases import Topics
from helpers.sinks import sink_settings
from helpers.waiting import wait_for

from zkconsumer.devcluster import Admin, DevCluster
from zkconsumer.spark.streams.record_sender import RecordSender


def test_rejection_is_returned_while_another_broker_dies(cluster: DevCluster, admin: Admin, topic: Topics) -> None:
    """The batch of the other broker is never sent again, so the sender must not wait for its time limit."""
    name = topic(2, config={"cleanup.policy": "compact"})
    admin.wait_for_leaders(name, 2)
    leaders = {partition.partition: leader for partition, leader in admin._leaders.items() if partition.topic == name}
    other = next(broker for broker in cluster.brokers if broker.endpoint == leaders[1])
    sender = RecordSender(sink_settings(cluster.bootstrap_servers, producer={"delivery.timeout.ms": 0}))

    def send(*keys: bytes | None) -> set[tuple[int, str]]:
        """Send a record to each partition; return the positions and errors of those that were not written."""
        records: Any = [
            (name, b"v", key, number, partial(sender.on_failure, number), None, 1_000, None)
            for number, key in enumerate(keys)
        ]
        return {(failure.position, failure.error.name()) for failure in sender.send(records)}

    try:
        assert send(b"k", b"k") == set()
        other.pause()
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(send, None, b"k")
            wait_for(lambda: sender.is_stopped, what="the rejection of the first record")
            other.kill()
            assert sent.result(20) == {(0, "INVALID_RECORD"), (1, "_PURGE_QUEUE")}
    finally:
        sender.close()
