"""Tests of a Spark task's reader when records do not arrive, with brokers on sockets."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from helpers import batches
from helpers.batches import Record
from helpers.configurations import fetch_settings
from helpers.fake_broker import PARTITION, FakeBroker

from zkconsumer.errors import BrokerUnavailableError, TopicAuthorizationError, ZkConsumerError
from zkconsumer.spark.data_loss import DataLossError
from zkconsumer.spark.executor.fetch_task import FetchTask
from zkconsumer.spark.executor.reader import read
from zkconsumer.spark.executor.row_schema import RowSchema

UNKNOWN, DENIED, STORAGE_ERROR = 3, 29, 56
LOG = [(batches.batch([Record(offset) for offset in range(first, first + 10)]), first + 10) for first in (0, 10, 20)]


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    """Two brokers; the first one is the leader of the partition, which has the offsets 0 to 29."""
    with FakeBroker(LOG) as one, FakeBroker(LOG) as two:
        one.peers = two.peers = [one.endpoint, two.endpoint]
        yield [one, two]


def task_of(brokers: list[FakeBroker], timeout_s: float, *, fails_on_data_loss: bool = False) -> FetchTask:
    """Return a task that reads the offsets 0 to 29."""
    return FetchTask(
        {PARTITION: (0, 30)},
        {},
        tuple(broker.endpoint for broker in brokers),
        fetch_settings(socket_timeout_ms=5000, refresh_leader_backoff_ms=50, fetch_wait_max_ms=5),
        2,
        RowSchema.from_columns(("offset",)),
        True,
        fails_on_data_loss,
        timeout_s,
    )


def offsets(task: FetchTask) -> list[int]:
    return [offset for batch in read(task) for offset in batch.column("offset").to_pylist()]


def fail_topic(brokers: list[FakeBroker], *codes: int) -> None:
    for broker, code in zip(brokers, codes, strict=True):
        broker.topic_errors = {PARTITION.topic: code} if code else {}


@pytest.mark.parametrize("fails_on_data_loss", [False, True])
@pytest.mark.parametrize(
    ("codes", "kind", "text"),
    [
        (
            (DENIED, DENIED),
            TopicAuthorizationError,
            "to the principal of this client, and restart the query",
        ),
        ((STORAGE_ERROR, STORAGE_ERROR), BrokerUnavailableError, "KAFKA_STORAGE_ERROR (56)"),
        ((UNKNOWN, STORAGE_ERROR), BrokerUnavailableError, "no records arrived for 1 s"),
    ],
)
def test_existing_records_are_not_skipped(
    codes: tuple[int, int], kind: type[ZkConsumerError], text: str, fails_on_data_loss: bool, brokers: list[FakeBroker]
) -> None:
    fail_topic(brokers, *codes)
    with pytest.raises(kind) as raised:
        offsets(task_of(brokers, 1.0, fails_on_data_loss=fails_on_data_loss))
    assert text in str(raised.value)
    assert "clusterUnavailableTimeout" in str(raised.value)


@pytest.mark.parametrize("code", [UNKNOWN, DENIED, STORAGE_ERROR])
def test_task_resumes_after_temporary_error(code: int, brokers: list[FakeBroker]) -> None:
    fail_topic(brokers, code, code if code != UNKNOWN else 0)
    restore = threading.Timer(1.0, fail_topic, [brokers, 0, 0])  # before half of the timeout
    restore.start()
    assert offsets(task_of(brokers, 4.0)) == list(range(30))
    restore.join()


def test_records_of_deleted_topic_are_skipped(brokers: list[FakeBroker]) -> None:
    fail_topic(brokers, UNKNOWN, UNKNOWN)
    assert offsets(task_of(brokers, 1.0)) == []
    with pytest.raises(DataLossError):
        offsets(task_of(brokers, 1.0, fails_on_data_loss=True))
