"""Tests of the queries that the tools share."""

from __future__ import annotations

import threading
import time
from typing import Any

from helpers.configurations import plaintext
from helpers.fake_broker import LIST_OFFSETS, FakeBroker

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.devcluster.process import free_port
from zkconsumer.log_ends import LATEST
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.tools import group_state

_TIMEOUT_S = 0.5
_PARTITIONS = [TopicPartition("t", number) for number in range(20)]


def test_silent_broker_delays_tools_by_one_timeout() -> None:
    is_over = threading.Event()

    def respond(key: int, _request: Any, body: bytes) -> bytes | None:
        if key != LIST_OFFSETS:
            return body
        is_over.wait(30)
        return None

    with FakeBroker(change=respond) as broker:
        broker.partition_counts = {"t": len(_PARTITIONS)}
        logs = LogOffsets(lambda: [broker.endpoint], plaintext(_TIMEOUT_S))
        started = time.monotonic()
        try:
            offsets, errors = group_state.log_offsets(logs, _PARTITIONS, LATEST)
            duration_s = time.monotonic() - started
        finally:
            is_over.set()
            logs.close()

    assert offsets == {}
    assert sorted(errors) == _PARTITIONS
    assert all(str(broker.endpoint) in error for error in errors.values())
    assert duration_s < len(_PARTITIONS) * _TIMEOUT_S / 2


def test_unreachable_brokers_are_errors_of_all_partitions() -> None:
    logs = LogOffsets(lambda: [Endpoint("127.0.0.1", free_port())], plaintext(_TIMEOUT_S))
    try:
        offsets, errors = group_state.log_offsets(logs, _PARTITIONS, LATEST)
    finally:
        logs.close()

    assert offsets == {}
    assert sorted(errors) == _PARTITIONS
