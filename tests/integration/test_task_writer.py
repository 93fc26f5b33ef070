"""The output of tasks in Kafka: transactions with the marker of a batch, and records that are rejected."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from helpers.aliases import Cluster, Topics
from helpers.sinks import HEADERS, output_of, read_partitions, read_topic, sink_settings
from helpers.teardown import started

from zkconsumer.errors import ConfigurationError, ProducerFencedError, RecordRejectedError, RetriableError, StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams import task_writer
from zkconsumer.spark.streams.markers import (
    NO_OFFSET,
    NO_OUTPUT,
    MarkedOffsets,
    Marker,
    MarkerCommitter,
    encode_offsets,
)
from zkconsumer.spark.streams.output import ProcessingGuarantee, SinkSettings, TaskOutput
from zkconsumer.spark.streams.packing import to_blob
from zkconsumer.spark.streams.record_sender import RecordSender
from zkconsumer.spark.streams.task_writer import PlainWriter, TaskWriter, TaskWriters, TransactionalWriter
from zkconsumer.topology.handlers import ErrorContext, log_and_continue, quarantine

Settings = Callable[..., SinkSettings]

FIRST, SECOND = Marker("query-1", 0), Marker("query-1", 1)
#: A compacted topic, in which the broker keeps the records of the test. Their timestamps are long ago, so a transaction
#: marker, which has the current time, starts a new log segment.
COMPACTED = {"cleanup.policy": "compact", "min.compaction.lag.ms": "10000000000000"}


@pytest.fixture
def settings(zkconsumer_cluster: Cluster, group: str) -> Settings:
    def make(**changes: Any) -> SinkSettings:
        defaults = {
            "application_id": group,
            "guarantee": ProcessingGuarantee.EXACTLY_ONCE_V2,
            "producer": {"topic.metadata.propagation.max.ms": 500},
        }
        return sink_settings(zkconsumer_cluster.bootstrap_servers, **(defaults | changes))

    return make


@pytest.fixture
def writer(settings: Settings) -> Iterator[Callable[..., TaskWriter]]:
    """Create writers of task 0_0, which are closed after the test."""

    with contextlib.ExitStack() as opened:

        def make(**changes: Any) -> TaskWriter:
            found = settings(**changes)
            if found.guarantee is not ProcessingGuarantee.EXACTLY_ONCE_V2:
                return PlainWriter(found)
            offsets = opened.enter_context(contextlib.closing(MarkedOffsets(found.client, found.application_id)))
            return TransactionalWriter(found, "0_0", offsets)

        with started(make, lambda one: one.close()) as start:
            yield start


@pytest.fixture
def read(zkconsumer_cluster: Cluster) -> Callable[..., list[Any]]:
    return partial(read_topic, zkconsumer_cluster.bootstrap_servers)


def values_of(messages: list[Any]) -> list[bytes]:
    return [message.value() for message in messages]


# ---- transactions ------------------------------------------------------------------------------------------


def test_repeated_batch_is_not_written_again(
    writer: Callable[..., TaskWriter], topic: Topics, read: Callable[..., list[Any]]
) -> None:
    sink, source = topic(1), topic(1)
    first = output_of(sink, [b"1", b"2"], source=source, next_offset=5)
    second = output_of(sink, [b"3"], source=source, next_offset=7)

    one, other = writer(), writer()
    for writing, output, marker in ((one, first, FIRST), (one, first, FIRST), (other, first, FIRST)):
        assert writing.write(output, marker) == {}
    other.write(second, SECOND)

    messages = read(sink, 3)
    assert values_of(messages) == [b"1", b"2", b"3"]
    assert messages[0].headers() == [("h", b"1")]
    assert messages[0].timestamp()[1] == 1_000


def test_marker_is_committed_with_the_output(
    writer: Callable[..., TaskWriter], settings: Settings, topic: Topics, group: str
) -> None:
    sink, source = topic(1), topic(1)
    writer().write(output_of(sink, [b"1"], source=source, next_offset=5), SECOND)

    offsets = MarkedOffsets(settings().client, group)
    try:
        found = offsets.find_marker({TopicPartition(source, 0): 5}, SECOND)
        assert SECOND.is_same_batch(found)
        with pytest.raises(StreamsError, match="in query query-1, so query other stops in batch 9"):
            offsets.find_marker({TopicPartition(source, 0): 5}, Marker("other", 9))
        with pytest.raises(StreamsError, match="this query is in batch 0: another application uses a copy"):
            offsets.find_marker({TopicPartition(source, 0): 5}, FIRST)
        with pytest.raises(StreamsError, match="only one application may use a checkpoint or a copy of it"):
            offsets.commit({TopicPartition(source, 0): 6}, SECOND)
        offsets.commit({TopicPartition(source, 0): 6}, Marker("query-1", 2))
    finally:
        offsets.close()


def test_committer_works_after_an_error_and_for_other_groups(settings: Settings, topic: Topics, group: str) -> None:
    partition, client = TopicPartition(topic(1), 0), settings().client
    committer, reader = MarkerCommitter(), MarkedOffsets(client, group)
    try:
        committer.commit(client, group, {partition: 5}, FIRST)
        with pytest.raises(StreamsError, match="in query query-1, so query other stops in batch 9"):
            committer.commit(client, group, {partition: 6}, Marker("other", 9))
        committer.commit(client, group, {partition: 7}, SECOND)
        committer.commit(client, f"{group}-2", {partition: 8}, Marker("other", 0))

        assert SECOND.is_same_batch(reader.find_marker({partition: 7}, SECOND))
    finally:
        reader.close()
        committer.close()
        committer.close()


def test_changed_output_of_a_repeated_batch_is_an_error(writer: Callable[..., TaskWriter], topic: Topics) -> None:
    sink, source = topic(1), topic(1)
    first = output_of(sink, [b"1"], source=source, next_offset=5)
    changed = output_of(sink, [b"2"], source=source, next_offset=5)
    writer().write(first, FIRST)

    with pytest.raises(StreamsError, match="task 0_0: the output of the repeated batch 0 differs from the committed"):
        writer().write(changed, FIRST)
    writer(fails_on_changed_output=False).write(changed, FIRST)


def test_output_of_a_repeated_batch_that_had_none_is_an_error(
    writer: Callable[..., TaskWriter], settings: Settings, topic: Topics, group: str
) -> None:
    sink, source = topic(1), topic(1)
    committer = MarkerCommitter()
    try:
        committer.commit(settings().client, group, {TopicPartition(source, 0): 5}, FIRST._replace(digest=NO_OUTPUT))
    finally:
        committer.close()

    with pytest.raises(StreamsError, match="the output of the repeated batch 0 differs from the committed"):
        writer().write(output_of(sink, [b"1"], source=source, next_offset=5), FIRST)


@pytest.mark.parametrize("fails", [False, True])
def test_missing_output_of_a_repeated_batch_is_reported(
    writer: Callable[..., TaskWriter],
    settings: Settings,
    topic: Topics,
    group: str,
    fails: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink, source = topic(1), topic(2)
    writer().write(output_of(sink, [b"1"], source=source, next_offset=5), FIRST)
    committer, other = MarkerCommitter(), TopicPartition(source, 1)
    offsets, marker = {TopicPartition(source, 0): 5, other: 1}, FIRST._replace(digest=NO_OUTPUT)
    message = f"task of partition {source}-0: the output of the repeated batch 0 differs from the committed output"
    try:
        for _ in range(2):
            with pytest.raises(StreamsError, match=message) if fails else contextlib.nullcontext():
                committer.commit(settings().client, group, offsets, marker, fails_on_changed_output=fails)
    finally:
        committer.close()

    assert caplog.text.count("output_changed") == caplog.text.count(message) == (0 if fails else 2)


def test_output_before_first_range_keeps_committed_offset(
    writer: Callable[..., TaskWriter], settings: Settings, topic: Topics, group: str
) -> None:
    sink, source = topic(1), topic(2)
    first, other = TopicPartition(source, 0), TopicPartition(source, 1)
    output = output_of(sink, [b"1"], source=source, next_offset=NO_OFFSET)
    output = output._replace(offsets=encode_offsets({first: NO_OFFSET, other: NO_OFFSET}))
    with pytest.raises(StreamsError, match=f"group '{group}' has no committed offset for partitions {first}, {other}:"):
        writer().write(output, FIRST)
    offsets = MarkedOffsets(settings().client, group)
    try:
        offsets.commit({other: 50}, FIRST)
        for batch in (1, 2):
            marker, one = Marker("query-1", batch), writer()
            for _ in range(2):
                one.write(output, marker)
            assert marker.is_same_batch(offsets.find_marker({first: NO_OFFSET, other: 50}, marker))
    finally:
        offsets.close()


@pytest.mark.parametrize("has_output_first", [True, False])
def test_output_before_first_range_is_compared(
    writer: Callable[..., TaskWriter], settings: Settings, topic: Topics, group: str, has_output_first: bool
) -> None:
    sink, source = topic(1), topic(1)
    unknown, marker = {TopicPartition(source, 0): NO_OFFSET}, Marker("query-1", 1)
    output = output_of(sink, [b"1"], source=source, next_offset=NO_OFFSET)
    offsets = MarkedOffsets(settings().client, group)

    def commit() -> None:
        offsets.commit(unknown, marker._replace(digest=NO_OUTPUT), fails_on_changed_output=True)

    def write() -> None:
        writer().write(output, marker)

    first, repeated = (write, commit) if has_output_first else (commit, write)
    try:
        offsets.commit({TopicPartition(source, 0): 50}, FIRST)
        first()
        with pytest.raises(StreamsError, match="the output of the repeated batch 1 differs from the committed output"):
            repeated()
        first()
        assert offsets.complete(unknown) == {TopicPartition(source, 0): 50}
    finally:
        offsets.close()


def test_writer_that_was_fenced_is_replaced(settings: Settings, topic: Topics, read: Callable[..., list[Any]]) -> None:
    sink, source = topic(1), topic(1)
    encoded = settings().encode()
    workers = [TaskWriters(), TaskWriters()]
    try:
        for batch in range(4):
            output = output_of(sink, [b"%d" % batch], source=source, next_offset=batch + 1)
            workers[batch % 2].write(encoded, output, Marker("query", batch), None)
    finally:
        for worker in workers:
            worker.close()

    assert values_of(read(sink, 4)) == [b"0", b"1", b"2", b"3"]


def test_unused_writer_is_closed(settings: Settings, topic: Topics, read: Callable[..., list[Any]]) -> None:
    sink, source, kept = topic(1), topic(2), []
    encoded, now = settings().encode(), [0.0]
    with contextlib.closing(TaskWriters(lambda: now[0])) as writers:
        for at, batch, task in ((0.0, 0, "0_0"), (599.0, 0, "0_1"), (601.0, 1, "0_1"), (601.0, 1, "0_0")):
            now[0] = at
            output = output_of(sink, [b"%d" % batch], source=source, next_offset=batch + 1, task=task)
            writers.write(encoded, output, Marker("query", batch), None)
            kept.append(sorted(task for _, task in writers._writers))

    assert kept == [["0_0"], ["0_0", "0_1"], ["0_1"], ["0_0", "0_1"]]
    assert values_of(read(sink, 4)) == [b"0", b"0", b"1", b"1"]


def test_second_application_is_fenced(writer: Callable[..., TaskWriter], topic: Topics) -> None:
    sink, source = topic(1), topic(1)
    old, new = writer(), writer()
    old.write(output_of(sink, [b"1"], source=source, next_offset=1), FIRST)
    new.write(output_of(sink, [b"2"], source=source, next_offset=2), SECOND)

    with pytest.raises(ProducerFencedError, match=r"transactional id '.*-0_0': another producer uses"):
        old.write(output_of(sink, [b"3"], source=source, next_offset=3), Marker("query-1", 2))
    with pytest.raises(StreamsError, match="only one application may use an application id"):
        writer().write(output_of(sink, [b"3"], source=source, next_offset=3), Marker("query-2", 2))


def test_transaction_timeout_above_that_of_the_broker(writer: Callable[..., TaskWriter], topic: Topics) -> None:
    sink, source = topic(1), topic(1)
    output = output_of(sink, [b"1"], source=source, next_offset=1)

    with pytest.raises(ConfigurationError, match=r"transaction\.max\.timeout\.ms"):
        writer(producer={"transaction.timeout.ms": 3_600_000}).write(output, FIRST)


# ---- rejected records --------------------------------------------------------------------------------------

GUARANTEES = list(ProcessingGuarantee)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_record_for_an_unknown_topic_is_an_error(
    writer: Callable[..., TaskWriter], topic: Topics, guarantee: ProcessingGuarantee, unique: Callable[[str], str]
) -> None:
    missing = unique("missing")
    output = output_of(missing, [b"1"], source=topic(1), next_offset=1)

    with pytest.raises(RecordRejectedError, match=f"task 0_0, topic '{missing}', .*does not exist; create it"):
        writer(guarantee=guarantee).write(output, FIRST)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_unreachable_brokers_are_no_error_of_a_record(
    writer: Callable[..., TaskWriter], topic: Topics, guarantee: ProcessingGuarantee, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_writer, "_TRANSACTION_TIMEOUT_S", 1.0)
    output = output_of(topic(1), [b"1"], source=topic(1), next_offset=1)
    client = {"bootstrap.servers": "127.0.0.1:1"}
    timeouts = {"delivery.timeout.ms": 500} if guarantee is ProcessingGuarantee.AT_LEAST_ONCE else {}

    with pytest.raises(RetriableError, match="check the brokers"):
        writer(guarantee=guarantee, client=client, producer=timeouts, handler=log_and_continue).write(output, FIRST)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("limit", ["producer", "topic"])
def test_record_that_is_too_large_is_dropped(
    writer: Callable[..., TaskWriter],
    topic: Topics,
    read: Callable[..., list[Any]],
    guarantee: ProcessingGuarantee,
    limit: str,
) -> None:
    sink = topic(1) if limit == "producer" else topic(1, config={"max.message.bytes": "5000"})
    producer = {"message.max.bytes": 5_000} if limit == "producer" else {"batch.num.messages": 1}
    seen: list[ErrorContext] = []

    def handle(context: ErrorContext, error: Exception) -> Any:
        assert "the record is too large" in str(error)
        seen.append(context)
        return log_and_continue(context, error)

    large = b"x" * 10_000
    output = output_of(sink, [b"1", large, b"2"], source=topic(1), next_offset=1)
    one = writer(guarantee=guarantee, producer=producer, handler=handle)
    one.write(output, FIRST)

    assert values_of(read(sink, 2)) == [b"1", b"2"]
    [context] = seen
    assert context.failed is not None
    assert (context.phase, context.task_id, context.node, context.failed.value) == ("production", "0_0", sink, large)
    with pytest.raises(
        RecordRejectedError, match=rf"task 0_0, topic '{sink}', record of 10001 bytes .*: the record is too large"
    ):
        writer(guarantee=guarantee, producer=producer).write(output, SECOND)


def test_records_after_a_rejected_one_are_written(
    writer: Callable[..., TaskWriter], topic: Topics, read: Callable[..., list[Any]]
) -> None:
    sink = topic(1, config={"max.message.bytes": "5000"})
    values = [b"x" * 10_000, *(b"%d" % number for number in range(20_000))]
    output = output_of(sink, values, source=topic(1), next_offset=1)
    one = writer(producer={"batch.size": 4_000, "linger.ms": 0}, handler=log_and_continue)
    one.write(output, FIRST)

    assert values_of(read(sink, 20_000)) == values[1:]


@pytest.mark.parametrize("earlier", [[], [b"0"]], ids=["new producer", "known producer"])
def test_records_before_a_rejected_one_are_written_first(
    writer: Callable[..., TaskWriter], topic: Topics, read: Callable[..., list[Any]], earlier: list[bytes]
) -> None:
    """A broker accepts any sequence number in the first batch of a producer, so later batches must wait for it."""
    sink = topic(1, config={"max.message.bytes": "5000"})
    values = [b"a", b"b", b"x" * 10_000, *(b"%d" % number for number in range(100))]
    one = writer(
        guarantee=ProcessingGuarantee.AT_LEAST_ONCE, producer={"batch.num.messages": 3}, handler=log_and_continue
    )
    one.write(output_of(sink, earlier, source=topic(1), next_offset=1), FIRST)
    one.write(output_of(sink, values, source=topic(1), next_offset=2), SECOND)

    assert values_of(read(sink, 102 + len(earlier))) == [*earlier, *values[:2], *values[3:]]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rejected_record_is_quarantined(
    writer: Callable[..., TaskWriter],
    topic: Topics,
    read: Callable[..., list[Any]],
    guarantee: ProcessingGuarantee,
    unique: Callable[[str], str],
) -> None:
    bad = topic(1)
    output = output_of(unique("missing"), [b"1"], source=topic(1), next_offset=1)
    producer = {"topic.metadata.propagation.max.ms": 500}
    one = writer(guarantee=guarantee, producer=producer, handler=quarantine, quarantine_topic=bad)
    assert one.write(output, FIRST) == {"dropped": 1, "dropped/production": 1}

    [message] = read(bad, 1)
    assert (message.key(), message.value()) == (b"k", b"1")
    assert dict(message.headers())["zkconsumer.phase"] == b"production"


def test_records_have_sequence_numbers(
    writer: Callable[..., TaskWriter], topic: Topics, read: Callable[..., list[Any]]
) -> None:
    sink = topic(1)
    output = output_of(sink, [b"1", b"2"], source=topic(1), next_offset=1, sequence=300)
    one = writer(guarantee=ProcessingGuarantee.AT_LEAST_ONCE, has_sequence_headers=True)

    for _ in range(2):
        one.write(output, FIRST)

    messages = read(sink, 4)
    assert [message.headers()[-1][1] for message in messages] == [b"query-1:0_0:300", b"query-1:0_0:301"] * 2
    assert messages[0].headers() == [("h", b"1"), ("zkconsumer.sequence", b"query-1:0_0:300")]


def test_records_of_internal_topics_have_no_sequence_numbers(
    writer: Callable[..., TaskWriter], topic: Topics, read: Callable[..., list[Any]]
) -> None:
    sink, internal = topic(1), topic(1)
    mixed = output_of([internal, sink], [b"1", b"2"], source=topic(1), next_offset=1)
    only_internal = output_of(internal, [b"3"], source=topic(1), next_offset=2, sequence=2)
    guarantee = ProcessingGuarantee.AT_LEAST_ONCE
    one = writer(guarantee=guarantee, has_sequence_headers=True, internal_topics=frozenset({internal}))

    for output in (mixed, only_internal):
        one.write(output, FIRST)

    assert [message.headers() for message in read(internal, 2)] == [[("h", b"1")]] * 2
    assert read(sink, 1)[0].headers()[-1] == ("zkconsumer.sequence", b"query-1:0_0:1")


def test_records_are_sent_once_through_small_producer_queue(
    writer: Callable[..., TaskWriter], topic: Topics, read: Callable[..., list[Any]]
) -> None:
    sink, values = topic(1), [b"%d" % number for number in range(2_500)]
    one = writer(
        guarantee=ProcessingGuarantee.AT_LEAST_ONCE,
        producer={"queue.buffering.max.messages": 7, "message.max.bytes": 1_000},
        handler=log_and_continue,
    )
    too_large = [b"x" * 2_000]

    one.write(output_of(sink, values[:1_200] + too_large + values[1_200:], source=topic(1), next_offset=1), FIRST)

    assert [message.value() for message in read(sink, len(values))] == values


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_record_larger_than_the_producer_queue_is_an_error(
    writer: Callable[..., TaskWriter], topic: Topics, guarantee: ProcessingGuarantee
) -> None:
    one = writer(guarantee=guarantee, producer={"queue.buffering.max.kbytes": 1}, handler=log_and_continue)

    with pytest.raises(ConfigurationError, match="queue.buffering.max.kbytes"):
        one.write(output_of(topic(1), [b"1", b"x" * 2_000, b"2"], source=topic(1), next_offset=1), FIRST)


# ---- batches with rejected records -------------------------------------------------------------------------


class Handled:
    """A production handler that skips records, and remembers their values."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def __call__(self, context: ErrorContext, error: Exception) -> Any:
        assert context.failed is not None
        self.values.append(context.failed.value)
        return log_and_continue(context, error)


def output_of_records(records: list[tuple[str, bytes | None, bytes, int]], *, source: str) -> TaskOutput:
    """Return an output of (topic, key, value, timestamp) records, which a single partition receives in this order."""
    topics, keys, values, timestamps = zip(*records, strict=True)
    batch = pa.record_batch(
        {
            "topic": pa.array(topics).dictionary_encode(),
            "partition": pa.array([None if key else 0 for key in keys], pa.int32()),
            "timestamp": pa.array(timestamps, pa.int64()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.nulls(len(records), HEADERS),
        }
    )
    return TaskOutput("0_0", 0, encode_offsets({TopicPartition(source, 0): 1}), to_blob(batch))


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed else []) for seed in range(12)])
def test_only_rejected_records_are_skipped(
    writer: Callable[..., TaskWriter],
    zkconsumer_cluster: Cluster,
    topic: Topics,
    guarantee: ProcessingGuarantee,
    seed: int,
) -> None:
    random = Random(seed)
    small = topic(3, config={"max.message.bytes": "20000", "retention.ms": "-1"})
    compacted = topic(3, config={**COMPACTED, "message.timestamp.after.max.ms": "3600000"})
    late = 4_000_000_000_000
    count, share = random.choice([3, 40, 400]), random.choice([0.003, 0.03, 0.3])
    records: list[tuple[str, bytes | None, bytes, int]] = []
    culprits: list[bytes] = []
    for number in range(count):
        sink, key = random.choice([small, compacted]), b"%d" % random.randrange(20)
        value = b"%d " % number + b"v" * random.choice([1, 1, 500, 4_000])
        record: tuple[str, bytes | None, bytes, int] = sink, key, value, 1_000
        if random.random() < share:
            large = b"%d " % number + b"x" * random.choice([20_100, 30_000])
            bad = [(small, key, large, 1_000), (compacted, None, value, 1_000), (compacted, key, value, late)]
            record = random.choice(bad)
            culprits.append(record[2])
        records.append(record)
    handled = Handled()
    one = writer(guarantee=guarantee, handler=handled, producer={"batch.size": random.choice([2_000_000, 60_000])})

    output = output_of_records(records, source=topic(1))

    metrics = one.write(output, FIRST)

    assert sorted(handled.values) == sorted(culprits)
    assert metrics == ({"dropped": len(culprits), "dropped/production": len(culprits)} if culprits else {})
    assert guarantee is ProcessingGuarantee.AT_LEAST_ONCE or one.write(output, FIRST) == metrics
    for sink in (small, compacted):
        accepted = [value for to, _, value, _ in records if to == sink and value not in set(culprits)]
        read_back = read_partitions(zkconsumer_cluster.bootstrap_servers, sink, 3, len(accepted))
        found = [values_of(messages) for messages in read_back]
        assert sorted(value for of_one in found for value in of_one) == sorted(accepted)
        for of_one in found:
            assert of_one == [value for value in accepted if value in set(of_one)]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_batch_above_limit_of_topic_is_divided(
    writer: Callable[..., TaskWriter], topic: Topics, read: Callable[..., list[Any]], guarantee: ProcessingGuarantee
) -> None:
    sink = topic(1, config={"max.message.bytes": "20000"})
    values = [b"%05d" % number * 100 for number in range(500)]
    one = writer(guarantee=guarantee)  # the default handler ends the task if a record is rejected

    for marker in (FIRST, SECOND):
        one.write(output_of(sink, values, source=topic(1), next_offset=1 + marker.batch), marker)

    assert values_of(read(sink, 1_000)) == values * 2


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_error_names_rejected_record_among_valid_ones(
    writer: Callable[..., TaskWriter], topic: Topics, guarantee: ProcessingGuarantee
) -> None:
    sink = topic(1, config={"max.message.bytes": "20000"})
    values = [b"1"] * 20
    values[13] = b"x" * 30_000

    with pytest.raises(RecordRejectedError, match=r"record of 30001 bytes \(sequence number 13\): the record is too"):
        writer(guarantee=guarantee).write(output_of(sink, values, source=topic(1), next_offset=1), FIRST)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_records_equal_to_a_rejected_one_are_written(
    writer: Callable[..., TaskWriter], topic: Topics, read: Callable[..., list[Any]], guarantee: ProcessingGuarantee
) -> None:
    sink = topic(1, config={"message.timestamp.after.max.ms": "3600000", "retention.ms": "-1"})
    records: list[tuple[str, bytes | None, bytes, int]] = [(sink, b"k", b"v", 1_000)] * 20
    records[7] = sink, b"k", b"v", 4_000_000_000_000
    handled = Handled()

    writer(guarantee=guarantee, handler=handled).write(output_of_records(records, source=topic(1)), FIRST)

    assert values_of(read(sink, 19)) == [b"v"] * 19
    assert handled.values == [b"v"]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_only_rejected_records_are_quarantined(
    writer: Callable[..., TaskWriter], topic: Topics, read: Callable[..., list[Any]], guarantee: ProcessingGuarantee
) -> None:
    sink, bad = topic(1, config=COMPACTED), topic(1)
    records: list[tuple[str, bytes | None, bytes, int]] = [
        (sink, b"k" if number % 5 else None, b"%d" % number, 1_000) for number in range(20)
    ]

    writer(guarantee=guarantee, handler=quarantine, quarantine_topic=bad).write(
        output_of_records(records, source=topic(1)), FIRST
    )

    assert values_of(read(bad, 4)) == [b"0", b"5", b"10", b"15"]
    assert values_of(read(sink, 16)) == [b"%d" % number for number in range(20) if number % 5]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_unwritable_quarantine_topic_is_an_error(
    writer: Callable[..., TaskWriter], topic: Topics, guarantee: ProcessingGuarantee
) -> None:
    sink, bad = topic(1, config=COMPACTED), topic(1, config=COMPACTED)
    one = writer(guarantee=guarantee, handler=quarantine, quarantine_topic=bad)

    with pytest.raises(RecordRejectedError, match=f"topic '{bad}', record of 1 bytes"):
        one.write(output_of_records([(sink, None, b"1", 1_000)], source=topic(1)), FIRST)


# ---- segments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "producer",
    [
        {},
        {"message.max.bytes": 2_000},
        {"message.max.bytes": "2000", "batch.size": 1_500_000},
        {"queue.buffering.max.kbytes": 2},
        {"queue.buffering.max.messages": 0},
        {"queue.buffering.max.messages": 0, "batch.num.messages": 7},
        {"delivery.timeout.ms": 4_000},
        {"batch.size": "16384", "batch.num.messages": 1},
        {"message.timeout.ms": "4000", "queue.buffering.max.ms": 0},
        {"delivery.timeout.ms": 0, "client.id": "c" * 300},
    ],
    ids=str,
)
def test_segments_are_not_divided(
    writer: Callable[..., TaskWriter], topic: Topics, read: Callable[..., list[Any]], producer: dict[str, Any]
) -> None:
    """Otherwise, the producer writes the second part of a segment although the broker rejects the first one."""
    sink = topic(1, config=COMPACTED)
    records: list[tuple[str, bytes | None, bytes, int]] = [
        (sink, None if number in (5, 11) else b"k", b"%d " % number + b"v" * 300, 1_000) for number in range(40)
    ]
    handled = Handled()
    one = writer(guarantee=ProcessingGuarantee.AT_LEAST_ONCE, handler=handled, producer=producer)

    one.write(output_of_records(records, source=topic(1)), FIRST)

    assert handled.values == [records[5][2], records[11][2]]
    assert values_of(read(sink, 38)) == [record[2] for record in records if record[1]]


def test_segments_of_later_outputs_are_not_divided(
    writer: Callable[..., TaskWriter], topic: Topics, read: Callable[..., list[Any]]
) -> None:
    """The batches of a topic are limited since the first output."""
    limited, sink = topic(1, config={"max.message.bytes": "2000"}), topic(1, config=COMPACTED)
    one = writer(guarantee=ProcessingGuarantee.AT_LEAST_ONCE, handler=Handled())
    one.write(output_of_records([(limited, b"k", b"v" * 300, 1_000)] * 40, source=topic(1)), FIRST)
    records: list[tuple[str, bytes | None, bytes, int]] = [
        (sink, None if number in (5, 11) else b"k", b"%d " % number + b"v" * 300, 1_000) for number in range(40)
    ]

    one.write(output_of_records(records, source=topic(1)), SECOND)

    assert len(read(limited, 40)) == 40
    assert values_of(read(sink, 38)) == [record[2] for record in records if record[1]]


def test_producer_of_segments_is_replaced_before_its_last_epoch(
    writer: Callable[..., TaskWriter],
    topic: Topics,
    read: Callable[..., list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_writer, "_MAX_REJECTIONS", 2)
    sink, small = topic(1), topic(1, config={"max.message.bytes": "5000"})
    records: list[tuple[str, bytes | None, bytes, int]] = [
        (sink if number % 2 else small, b"k", b"%d " % number + b"v" * (6_000 if number % 6 == 0 else 1), 1_000)
        for number in range(80)
    ]
    handled = Handled()
    one = writer(guarantee=ProcessingGuarantee.AT_LEAST_ONCE, handler=handled)

    one.write(output_of_records(records, source=topic(1)), FIRST)

    assert handled.values == [record[2] for record in records[::6]]
    for name in (sink, small):
        accepted = [value for to, _, value, _ in records if to == name and len(value) < 6_000]
        assert values_of(read(name, len(accepted))) == accepted


def test_segment_after_a_rejected_one_is_sent_once(settings: Settings, topic: Topics) -> None:
    sink = topic(1, config=COMPACTED)
    sender = RecordSender(settings(producer={}), sends_segments=True)

    def send(key: bytes | None) -> list[str | None]:
        record: Any = sink, b"v", key, 0, partial(sender.on_failure, 0), None, 1_000, None
        return [failure.error.name() for failure in sender.send([record])]

    try:
        assert send(b"k") == []
        for _ in range(20):
            assert send(None) == ["INVALID_RECORD"]
            assert send(b"k") == []
    finally:
        sender.close()


@pytest.mark.parametrize("earlier", [0, 1], ids=["new producer", "known producer"])
def test_output_after_a_rejected_last_record_is_written_in_order(
    writer: Callable[..., TaskWriter], topic: Topics, read: Callable[..., list[Any]], earlier: int
) -> None:
    sink = topic(1, config=COMPACTED)
    values = [b"%d" % number for number in range(2_000)]
    one = writer(guarantee=ProcessingGuarantee.AT_LEAST_ONCE, handler=Handled())

    for number in range(3):
        last: list[tuple[str, bytes | None, bytes, int]] = [(sink, b"k", b"v", 1_000)] * earlier
        one.write(output_of_records([*last, (sink, None, b"x", 1_000)], source=topic(1)), Marker("query-1", 2 * number))
        output = output_of_records([(sink, b"k", value, 1_000) for value in values], source=topic(1))
        one.write(output, Marker("query-1", 2 * number + 1))

    assert values_of(read(sink, 3 * (earlier + 2_000))) == ([b"v"] * earlier + values) * 3
