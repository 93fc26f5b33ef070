"""Tests of decoding records that Kafka's own classes wrote."""

from __future__ import annotations

import pytest
from helpers import batches
from helpers.batches import CODEC_NAMES, GOLDEN, GOLDEN_APPEND_TIME, GOLDEN_RECORDS

from zkconsumer.fetcher import _decode, decode_py

from .chunks import ANY, Read, chunk_of, golden_rows, in_microseconds, read, read_arrow


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("name", [name for name in GOLDEN if name.split()[1] in CODEC_NAMES])
def test_records_written_by_kafka_are_read(name: str) -> None:
    chunk = chunk_of(GOLDEN[name], 100)
    assert read(chunk) == Read(golden_rows(name), [4], [106])
    assert read_arrow(chunk) == Read(in_microseconds(golden_rows(name)), [4], [106])
    assert read_arrow(chunk, headers=False).rows == in_microseconds(golden_rows(name), headers=False)


@pytest.mark.usefixtures("twin")
def test_control_and_empty_batches_have_no_rows() -> None:
    data = GOLDEN["2 ABORT"] + GOLDEN["2 COMMIT"] + GOLDEN["2 empty"]
    assert read(chunk_of(data, 106)) == Read([], [], [])
    data = GOLDEN["2 empty"]
    assert _decode.next_offset(data, *ANY) == decode_py.next_offset(data, *ANY) == (210, len(data), None)


@pytest.mark.parametrize(
    ("name", "built"),
    [
        ("0 none", batches.message_set(0, GOLDEN_RECORDS)),
        ("1 none", batches.message_set(1, GOLDEN_RECORDS)),
        ("1 none append", batches.message_set(1, GOLDEN_RECORDS, log_append_time=GOLDEN_APPEND_TIME)),
        ("2 none", batches.batch(GOLDEN_RECORDS)),
        ("2 none append", batches.batch(GOLDEN_RECORDS, log_append_time=GOLDEN_APPEND_TIME)),
        ("2 none transactional", batches.batch(GOLDEN_RECORDS, producer_id=4242, transactional=True)),
        ("2 none delete horizon", batches.batch(GOLDEN_RECORDS, delete_horizon=1_650_000_000_000)),
        ("2 ABORT", batches.control_batch(106, 4242, commit=False)),
        ("2 COMMIT", batches.control_batch(106, 4242, commit=True)),
    ],
)
def test_builders_write_same_bytes_as_kafka(name: str, built: bytes) -> None:
    if name.isupper():  # Kafka writes markers with leader epoch 0
        built = batches.patched(built, 12, "i", 0)
    assert built == GOLDEN[name]
