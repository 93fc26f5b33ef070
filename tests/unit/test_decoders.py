"""Tests of user-defined decoders that fail or return something else than rows."""

from __future__ import annotations

import random
import sys
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from helpers import batches
from helpers.batches import Record
from pyspark import SparkFiles

from zkconsumer.errors import ConfigurationError
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.message import ARROW_SCHEMA, MessageAndMetadata, TopicPartition
from zkconsumer.spark.executor.decoders import BatchDecoder, RecordDecoder, UndecodableRecordError, load
from zkconsumer.spark.executor.row_schema import CORRUPT_FIELD, RowSchema
from zkconsumer.spark.executor.rows import create_reader

SCHEMA = pa.schema([("word", pa.string())])


class Returns(RecordDecoder):
    """Returns, or raises, the attribute for the records whose value is ``bad``."""

    schema: ClassVar[Any] = "word string"
    result: ClassVar[Any] = None

    def decode(self, record: MessageAndMetadata) -> Any:
        if record.value is not None and record.value != b"bad":
            return [(record.value.decode(),)]
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


class ReturnsBatches(BatchDecoder):
    """Returns, or raises, the attribute for the batches with a ``bad`` value."""

    schema: ClassVar[Any] = "word string"
    result: ClassVar[Any] = None

    def decode(self, batch: pa.RecordBatch) -> Any:
        if b"bad" not in batch.column("value").to_pylist():
            return pa.RecordBatch.from_arrays([batch.column("value").cast(pa.string())], ["word"])
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def read(decoder: type[Any], policy: str) -> list[Any]:
    """Return the words of a chunk with a record that the decoder answers with its ``result``."""
    schema = SCHEMA.append(CORRUPT_FIELD) if policy == "quarantine" else SCHEMA
    row_schema = RowSchema(schema, f"unit.test_decoders:{decoder.__name__}", {}, policy)
    reader = create_reader(row_schema, check_crcs=True, can_end=False)
    data = batches.batch([Record(offset, value=value) for offset, value in enumerate((b"good", b"bad", b"fine"))])
    found = reader.read(Chunk(TopicPartition("t", 0), 0, 3, data))
    return [word for batch in found for word in batch.column("word").to_pylist()]


@pytest.fixture
def returning(monkeypatch: pytest.MonkeyPatch) -> Any:
    def set_result(result: Any) -> None:
        for decoder in (Returns, ReturnsBatches):
            monkeypatch.setattr(f"unit.test_decoders.{decoder.__name__}.result", result)

    return set_result


@pytest.mark.parametrize("decoder", [Returns, ReturnsBatches])
@pytest.mark.parametrize("policy", ["raise", "skip", "quarantine"])
@pytest.mark.parametrize("error", [MemoryError("no memory"), pa.ArrowMemoryError("no memory")])
def test_memory_error_is_not_skipped(decoder: type[Any], policy: str, error: Exception, returning: Any) -> None:
    returning(error)
    with pytest.raises(MemoryError, match="no memory"):
        read(decoder, policy)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ("word", "decode() must return None or an iterable of tuples, got str"),
        (b"word", "decode() must return None or an iterable of tuples, got bytes"),
        ({"word": "x"}, "decode() must return None or an iterable of tuples, got dict"),
        (["w"], "decode() must return rows that are tuples, got a row of type str"),
        ([{"word": "x"}], "decode() must return rows that are tuples, got a row of type dict"),
        ([("x",), "w"], "decode() must return rows that are tuples, got a row of type str"),
    ],
)
def test_result_that_is_no_rows_is_rejected(result: Any, reason: str, returning: Any) -> None:
    returning(result)
    with pytest.raises(UndecodableRecordError) as raised:
        read(Returns, "raise")
    assert f"topic 't' partition 0 offset 1: decoder Returns raised TypeError('{reason}')" in str(raised.value)
    assert read(Returns, "skip") == ["good", "fine"]
    assert read(Returns, "quarantine") == ["good", "fine", None]


@pytest.mark.parametrize("result", ["word", {"word": "x"}, [("x",)]])
def test_result_that_is_no_batch_is_rejected(result: Any, returning: Any) -> None:
    returning(result)
    with pytest.raises(
        UndecodableRecordError, match="must return a RecordBatch, an iterable of RecordBatch objects or None"
    ):
        read(ReturnsBatches, "raise")
    assert read(ReturnsBatches, "skip") == ["good", "fine"]


@pytest.mark.parametrize("result", [None, [], (), [("a",), ["b"]]])
def test_result_may_have_any_number_of_rows(result: Any, returning: Any) -> None:
    returning(result)
    assert read(Returns, "raise") == ["good", *(row[0] for row in result or ()), "fine"]


_MODULE = """from zkconsumer.spark import RecordDecoder

class Words(RecordDecoder):
    schema = "word string"
    def decode(self, record): return []
"""


@pytest.mark.parametrize("suffix", ["zip", "egg", "jar"])
def test_decoder_in_archive_added_after_registration_is_found(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    name = f"decoder_in_{suffix}"
    with pytest.raises(ConfigurationError, match="or was added with --py-files or addPyFile before load"):
        load(f"{name}:Words")
    with zipfile.ZipFile(tmp_path / f"one.{suffix}", "w") as archive:
        archive.writestr(f"{name}.py", _MODULE)
    assert load(f"{name}:Words").schema == "word string"
    assert load(f"{name}:Words").schema == "word string"
    assert sys.path.count(str(tmp_path / f"one.{suffix}")) == 1


def test_driver_does_not_search_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", False)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.writestr("never_found.py", _MODULE)
    with pytest.raises(ConfigurationError, match="No module named 'never_found'"):
        load("never_found:Words")


class KeepsColumns(BatchDecoder):
    """Returns the values of the records whose value is not ``bad``."""

    schema: ClassVar[Any] = "value binary"

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if b"bad" in batch.column("value").to_pylist():
            raise ValueError("bad")
        return batch.select(["value"])


class Strict(BatchDecoder):
    """Returns the headers; an exception concerns the decoder instead of a record."""

    schema: ClassVar[Any] = "value binary"
    wants_headers: ClassVar[bool] = True
    rejects_records: ClassVar[bool] = False

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if b"bad" in batch.column("value").to_pylist():
            raise ValueError("planned")
        names = [found[0]["key"].encode() for found in batch.column("headers").to_pylist()]
        return pa.RecordBatch.from_arrays([pa.array(names, pa.binary())], ["value"])


@pytest.mark.parametrize("policy", ["raise", "skip", "quarantine"])
def test_error_of_decoder_that_rejects_no_records_fails(policy: str) -> None:
    schema = pa.schema([ARROW_SCHEMA.field("value"), *([CORRUPT_FIELD] if policy == "quarantine" else [])])
    reader = create_reader(RowSchema(schema, "unit.test_decoders:Strict", {}, policy), check_crcs=True, can_end=False)
    good = batches.batch([Record(0, value=b"good", headers=(("h", b"1"),))])
    [found] = reader.read(Chunk(TopicPartition("t", 0), 0, 1, good))
    assert found.column("value").to_pylist() == [b"h"]
    bad = batches.batch([Record(0, value=b"good"), Record(1, value=b"bad")])
    with pytest.raises(ValueError, match="planned"):
        list(reader.read(Chunk(TopicPartition("t", 0), 0, 2, bad)))


_MAX_MS = ((1 << 63) - 1) // 1000


@pytest.mark.parametrize("name", [None, "unit.test_decoders:KeepsColumns"])
@pytest.mark.parametrize("policy", ["raise", "skip", "quarantine"])
@pytest.mark.parametrize("seed", range(10))
def test_clamped_timestamps_are_logged_or_quarantined(
    name: str | None, policy: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(seed)
    times = [
        rng.choice([0, -1, _MAX_MS, _MAX_MS + 1, (1 << 63) - 1, 1_600_000_000_000]) for _ in range(rng.randint(1, 8))
    ]
    columns = pa.schema([ARROW_SCHEMA.field("offset"), ARROW_SCHEMA.field("value"), ARROW_SCHEMA.field("timestamp")])
    valid = columns if name is None else pa.schema([ARROW_SCHEMA.field("value")])
    schema = valid.append(CORRUPT_FIELD) if policy == "quarantine" else valid
    reader = create_reader(RowSchema(schema, name, {}, policy), check_crcs=True, can_end=False)
    data = b"".join(
        batches.batch([Record(offset, value=b"%d" % offset, timestamp=time)], base_offset=offset)
        for offset, time in enumerate(times)
    )
    rows = list(reader.read(Chunk(TopicPartition("t", 0), 0, len(times), data)))
    clamped = [offset for offset, time in enumerate(times) if time > _MAX_MS]

    values = [value for found in rows for value in found.column("value").to_pylist() if value is not None]
    quarantined = [
        row for found in rows if policy == "quarantine" for row in found.column("corrupt").to_pylist() if row
    ]
    assert [row["offset"] for row in quarantined] == (clamped if policy == "quarantine" else [])
    assert all("outside the range of the column 'timestamp'" in row["error"] for row in quarantined)
    kept = [offset for offset in range(len(times)) if policy != "quarantine" or offset not in clamped]
    assert values == [b"%d" % offset for offset in kept]
    assert caplog.text.count("timestamps_clamped") == min(1, len(clamped))


def test_rejected_record_may_have_time_after_year_9999() -> None:
    """Python's datetime cannot represent it."""
    schema = pa.schema([ARROW_SCHEMA.field("value"), CORRUPT_FIELD])
    reader = create_reader(
        RowSchema(schema, "unit.test_decoders:KeepsColumns", {}, "quarantine"), check_crcs=True, can_end=False
    )
    data = batches.batch([Record(0, value=b"bad", timestamp=300_000_000_000_000)])
    [found] = reader.read(Chunk(TopicPartition("t", 0), 0, 1, data))
    assert found.column("corrupt").to_pylist()[0]["value"] == b"bad"
