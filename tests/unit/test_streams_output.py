"""Records of a task's output, as the producer receives them."""

from __future__ import annotations

import json
import pickle
from contextlib import closing
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from helpers.sinks import sink_settings

from zkconsumer.errors import ConfigurationError, StreamsError
from zkconsumer.spark.streams.markers import NO_OUTPUT, Marker
from zkconsumer.spark.streams.output import (
    TIMESTAMP_HEADER,
    ProcessingGuarantee,
    SinkSettings,
    TaskOutput,
    count_replaced_timestamps,
    read_records,
    restore_timestamps,
)
from zkconsumer.spark.streams.packing import to_blob
from zkconsumer.spark.streams.record_sender import RecordSender
from zkconsumer.spark.streams.rejected_records import RejectedRecords
from zkconsumer.spark.streams.servers_file import ServersFile
from zkconsumer.spark.streams.sink import TopicSink
from zkconsumer.spark.streams.task_writer import TaskWriters, compute_digest
from zkconsumer.topology.handlers import ErrorContext, quarantine_record
from zkconsumer.topology.loop.records import Header, SourceRecord

QUERY = "6f1c2b9e-0d1a-4a41-9d9c-0d6a8d0f7a35"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def settings(**changes: Any) -> SinkSettings:
    topics = {"partition_counts": {"out": 3, "internal": 2}, "internal_topics": frozenset({"internal"})}
    return sink_settings(**(topics | changes))


def output_of(rows: list[dict[str, Any]], sequence: int = 0) -> TaskOutput:
    default = {"topic": "out", "partition": None, "timestamp": 5, "key": b"k", "value": b"v", "headers": None}
    columns = {name: [{**default, **row}[name] for row in rows] for name in default}
    batch = pa.record_batch(
        {
            "topic": pa.array(columns["topic"]).dictionary_encode(),
            "partition": pa.array(columns["partition"], pa.int32()),
            "timestamp": pa.array(columns["timestamp"], pa.int64()),
            "key": pa.array(columns["key"], pa.binary()),
            "value": pa.array(columns["value"], pa.binary()),
            "headers": pa.array(columns["headers"], HEADERS),
        }
    )
    return TaskOutput("0_3", sequence, json.dumps([]), to_blob(batch))


NO_RECORDS = pa.RecordBatch.from_pylist(
    [],
    pa.schema(
        [
            ("topic", pa.dictionary(pa.int32(), pa.string())),
            ("partition", pa.int32()),
            ("timestamp", pa.int64()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", HEADERS),
        ]
    ),
)


def read(output: TaskOutput, **changes: Any) -> list[Any]:
    return list(read_records(output, settings(**changes), QUERY, lambda *_: None))


# ---- timestamps --------------------------------------------------------------------------------------------


def test_timestamp_zero_is_replaced_and_counted() -> None:
    output = output_of([{"timestamp": time} for time in (0, 1, 0, 7)] + [{"timestamp": 0, "topic": "internal"}])

    assert [record[6] for record in read(output)] == [1, 1, 1, 7, 1]
    assert count_replaced_timestamps(output, settings()) == {"out": 2}


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")])
def test_timestamp_zero_is_restored_in_internal_topics(kind: pa.DataType) -> None:
    headers = [None, [("h", b"1")], [("h", None), ("", b"")], None, [("h", b"1")]]
    times = [0, 0, 0, 1, 2]
    rows = [
        {"topic": "internal", "timestamp": time, "headers": found} for time, found in zip(times, headers, strict=True)
    ]

    sent = read(output_of(rows))
    fetched = pa.table(
        {
            "timestamp": pa.array([record[6] for record in sent], pa.int64()).cast(kind),
            "headers": pa.array([record[7] for record in sent], HEADERS),
        }
    )
    restored = restore_timestamps(fetched)

    assert TIMESTAMP_HEADER in str(fetched.column("headers").to_pylist())
    assert restored.column("timestamp").cast(pa.int64()).to_pylist()[:3] == [0, 0, 0]
    assert restored.column("timestamp")[3:] == fetched.column("timestamp")[3:]
    found = [
        None if of_one is None else [(one["key"], one["value"]) for one in of_one]
        for of_one in restored.column("headers").to_pylist()
    ]
    assert found == headers
    assert restore_timestamps(restored) == restored


def test_unusual_records_are_passed_unchanged() -> None:
    rows: list[dict[str, Any]] = [
        {"key": key, "value": value} for key in (None, b"", b"k") for value in (None, b"", b"v")
    ]
    rows[0]["headers"] = [("", None), ("h", b""), ("h", None)]

    sent = read(output_of(rows))

    assert [(record[2], record[1]) for record in sent] == [(row["key"], row["value"]) for row in rows]
    assert sent[0][7] == rows[0]["headers"]


# ---- own headers -------------------------------------------------------------------------------------------


def test_sequence_header_replaces_earlier_ones() -> None:
    headers: Any = [("a", b"1")]
    for number in range(4):
        [record] = read(output_of([{"headers": headers}], sequence=number), has_sequence_headers=True)
        headers = record[7]

    assert headers == [("a", b"1"), ("zkconsumer.sequence", b"6f1c2b9e:0_3:3")]


def test_quarantined_record_has_only_the_newest_error_headers() -> None:
    headers: tuple[Header, ...] = (("a", b"1"), ("zkconsumer.sequence", b"0_0:1"))
    for number in range(3):
        source = SourceRecord(f"t{number}", 0, number, 5, b"k", b"v", headers)
        context = ErrorContext("processing", f"0_{number}", "node", source, 5)
        headers = quarantine_record("bad", context, ValueError(str(number))).headers

    assert headers[:2] == (("a", b"1"), ("zkconsumer.sequence", b"0_0:1"))
    assert dict(headers[2:]) == {
        "zkconsumer.phase": b"processing",
        "zkconsumer.task": b"0_2",
        "zkconsumer.node": b"node",
        "zkconsumer.error": b"ValueError: 2",
        "zkconsumer.topic": b"t2",
        "zkconsumer.partition": b"0",
        "zkconsumer.offset": b"2",
    }
    assert len(headers) == 9


def test_handler_of_rejected_record_must_return_a_response() -> None:
    [record] = read(output_of([{}]))
    rejected = RejectedRecords(settings(handler=lambda *_: None), output_of([{}]))

    with pytest.raises(StreamsError, match="the error handler must return an ErrorResponse, got None"):
        rejected.handle(0, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), record)

    assert not rejected.is_rejected(0)


# ---- repeated records --------------------------------------------------------------------------------------


def discard_repeats(log: dict[int, list[Any]]) -> list[bytes]:
    """Apply the recipe of the documentation to the (header, value) pairs in each partition."""
    kept: list[bytes] = []
    for of_partition in log.values():
        highest: dict[str, int] = {}
        for header, value in of_partition:
            prefix, _, number = header.decode().rpartition(":")
            if int(number) > highest.get(prefix, -1):
                highest[prefix] = int(number)
                kept.append(value)
    return kept


@pytest.mark.parametrize("seed", range(20))
def test_reader_of_sequence_numbers_keeps_each_record_once(seed: int) -> None:
    random = Random(seed)
    counts = {"out": random.randint(1, 5)}
    log: dict[int, list[Any]] = {number: [] for number in range(counts["out"])}
    values: list[Any] = []
    for run in range(2):  # the second run starts after ``clean_up()``, with sequence number 0
        sequence = 0
        for _ in range(3):
            rows = [{"key": None, "value": b"%d/%d" % (run, sequence + n)} for n in range(random.randint(1, 400))]
            output = output_of(rows, sequence)
            for _ in range(random.choice([1, 1, 2])):  # a repeated batch follows one that was written in part
                lost = {number for number in log if random.random() < 0.3}
                records: list[Any] = list(
                    read_records(
                        output,
                        settings(has_sequence_headers=True, partition_counts=counts),
                        f"query-{run}",
                        lambda *_: None,
                    )
                )
                for record in records:
                    if record[3] not in lost:
                        log[record[3]].append((record[7][-1][1], record[1]))
            for record in records:  # the last attempt writes everything
                if record[3] in lost:
                    log[record[3]].append((record[7][-1][1], record[1]))
            values += [row["value"] for row in rows]
            sequence += len(rows)

    assert sorted(discard_repeats(log)) == sorted(values)


def test_producer_chooses_partitions_of_records_with_keys() -> None:
    rows: list[dict[str, Any]] = [
        {"key": b"k"},
        {"key": b""},
        {"key": None, "topic": "other"},
        {"key": None, "partition": 2},
        {"key": None},
    ]

    assert [record[3] for record in read(output_of(rows))] == [-1, -1, -1, 2, 0]


# ---- producer properties -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["delivery.timeout.ms", "message.timeout.ms"])
@pytest.mark.parametrize("timeout_ms", [0, 1, "50", 51, 5_000, 2_147_483_647])
@pytest.mark.parametrize("sends_segments", [False, True])
def test_any_delivery_timeout_is_accepted(name: str, timeout_ms: Any, sends_segments: bool) -> None:
    changed = settings(client={"bootstrap.servers": "127.0.0.1:1"}, producer={name: timeout_ms})
    RecordSender(changed, sends_segments=sends_segments).close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delivery.timeout.ms", "5s"),
        ("message.timeout.ms", None),
        ("batch.size", "0x1000"),
        ("message.max.bytes", "1 MB"),
    ],
)
def test_invalid_numbers_are_rejected_by_name(name: str, value: Any) -> None:
    changed = settings(client={"bootstrap.servers": "127.0.0.1:1"}, producer={name: value})
    with pytest.raises(ConfigurationError, match=f"{name}|delivery.timeout.ms"):
        RecordSender(changed).close()


# ---- digests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_largest_record_is_that_of_java_producer(key: bytes | None) -> None:
    largest = b"v" * (
        (1 << 20) - 87 - len(key or b"")
    )  # Source: Kafka 3.9 DefaultRecordBatch.estimateBatchSizeUpperBound
    sender = RecordSender(settings(client={"bootstrap.servers": "127.0.0.1:1"}))
    try:
        sender.producer.produce("out", largest, key)
        with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
            sender.producer.produce("out", largest + b"v", key)
    finally:
        sender.close()


def test_digest_covers_topic_names_and_all_columns() -> None:
    rows: list[dict[str, Any]] = [{"topic": "out"}, {"topic": "internal"}]
    changes: list[dict[str, Any]] = [
        {"topic": "other"},
        {"key": b"K"},
        {"key": None},
        {"value": b""},
        {"value": None},
        {"timestamp": 6},
        {"partition": 0},
        {"headers": [("h", None)]},
    ]
    changed = [output_of([{**rows[0], **change}, rows[1]]) for change in changes]
    swapped = output_of(rows[::-1])

    digests = [compute_digest(output) for output in (output_of(rows), swapped, *changed)]

    assert len(set(digests)) == len(digests)
    assert compute_digest(output_of(rows)) == digests[0]
    assert min(digests) > NO_OUTPUT


# ---- brokers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ProcessingGuarantee)
def test_clients_of_a_batch_use_the_current_brokers(guarantee: ProcessingGuarantee) -> None:
    encoded = settings(guarantee=guarantee, client={"bootstrap.servers": "127.0.0.1:1", "client.id": "c"}).encode()
    with closing(ServersFile()) as file:
        sink = TopicSink({"settings": encoded, "serversFile": file.open("127.0.0.1:1")})
        for servers in ("127.0.0.1:2", "127.0.0.1:3"):
            file.write(servers)
            sent: Any = pickle.loads(pickle.dumps(sink.streamWriter(None, False)))
            found = SinkSettings.decode(sent._settings).with_servers(sent._servers)
            assert found.client == {"bootstrap.servers": servers, "client.id": "c"}


def test_kept_writer_uses_the_current_brokers() -> None:
    encoded = settings(client={"bootstrap.servers": "127.0.0.1:1"}).encode()
    with closing(TaskWriters()) as writers:
        for servers in ("127.0.0.1:2", "127.0.0.1:3", None):
            writers.write(encoded, TaskOutput("0_3", 0, "[]", to_blob(NO_RECORDS)), Marker(QUERY, 1), servers)
            [(writer, _)] = writers._writers.values()
            assert writer.settings.client == {"bootstrap.servers": servers or "127.0.0.1:1"}
