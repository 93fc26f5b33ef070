"""Fuzz the offsets of Spark queries: ``python -m tests.fuzz.offsets --seconds 30``.

They are in a checkpoint, which any program can write, in a file for ``migrate-offsets``, or in an option. Whatever the
content is, reading must return valid offsets or raise an error of this package; see ``runner``. A valid offset is the
same after it was written and read again.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zkconsumer.message import TopicPartition
from zkconsumer.spark import checkpoint
from zkconsumer.spark.offset import BatchOffset, check_format, from_offset
from zkconsumer.spark.options.option_reader import OptionReader
from zkconsumer.spark.options.starting_offsets import StartingOffsets
from zkconsumer.zookeeper.registry import OFFSET_MAX, is_valid_topic_name

from .runner import Fuzzer, Kind
from .znodes import NUMBERS, TEXTS, TOPICS, expression, mutated, obj, text

OFFSETS = [0, 1, 7, 1 << 31, 1 << 53, OFFSET_MAX]
_MAX_WRITTEN = 10_000
_FOLDER = tempfile.TemporaryDirectory(prefix="zkconsumer-fuzz-")
_CHECKPOINT = Path(_FOLDER.name)


def partitions(rng: random.Random) -> list[TopicPartition]:
    """Return some partitions."""
    return [TopicPartition(rng.choice(TOPICS), rng.choice([0, 1, 2, 10, 999])) for _ in range(rng.randrange(6))]


def batch_offset(rng: random.Random) -> BatchOffset:
    """Return a valid offset of a batch."""
    return BatchOffset(
        ranges={partition: (rng.choice(OFFSETS), rng.choice(OFFSETS)) for partition in partitions(rng)},
        generation=rng.choice([0, 1, 10**6]),
        group=rng.choice([None, "g", "é"]),
        known=frozenset(partitions(rng)),
        topic_ids=dict.fromkeys(rng.sample(TOPICS, 2), "id-vGcMCkhSTJ-GqCtFvCpNYg"),
        deleted_topics=tuple(rng.sample(TOPICS, 2)),
        earlier_ends={partition: rng.choice(OFFSETS) for partition in partitions(rng)},
        idle=frozenset(partitions(rng)),
        sequence=rng.choice([0, 1, 10**6]),
        is_ended=rng.random() < 0.2,
    )


def by_topic(rng: random.Random, values: list[str]) -> str:
    """Return a JSON object with a value by topic and partition; some are not valid."""
    keys = ["0", "1", "2"] if rng.random() < 0.9 else ["-1", "00", "\u0662", "1_0", "9999999999", " 1", "", "1e3"]
    topics = TOPICS if rng.random() < 0.9 else [*TOPICS, *(json.dumps(name)[1:-1] for name in TEXTS)]
    chosen = rng.sample(topics, rng.randrange(3))
    return obj(rng, {topic: obj(rng, {key: rng.choice(values) for key in rng.sample(keys, 2)}) for topic in chosen})


def offset_text(rng: random.Random) -> str:
    """Return a JSON object that resembles the offset of a batch."""
    if rng.random() < 0.3:
        return json.dumps(batch_offset(rng).to_json())
    number = rng.choice(NUMBERS) if rng.random() < 0.1 else "1"
    spans = ["[0,5]", "[5,5]", "[7,0]"] if rng.random() < 0.8 else ["[0]", "[0,1,2]", '"01"', f"[{number},0]", "[-1,3]"]
    counts = ["[0,1]", "3", "0"] if rng.random() < 0.8 else ["-1", "[1.5]", "1000001", "1000", number, '"3"', "[-1]"]
    if rng.random() < 0.002:
        counts = ["400000"]  # of three topics: above the limit, of two: below
    fields = {"version": rng.choice(["1", "1", "1", number]), "generation": number, "ranges": by_topic(rng, spans)}
    fields["sequence"] = number
    optional = {
        "group": json.dumps(rng.choice(["g", *TEXTS])),
        "known": obj(rng, {topic: rng.choice(counts) for topic in rng.sample(TOPICS, 3)}),
        "idle": obj(rng, {topic: rng.choice(counts) for topic in rng.sample(TOPICS, 1)}),
        "ids": obj(rng, dict.fromkeys(rng.sample(TOPICS, 2), rng.choice(['"id-x"', '""', number]))),
        "gone": rng.choice(["[]", '["t","u"]', '"tu"', f"[{number}]"]),
        "before": by_topic(rng, ["0", "5", number]),
        "ended": rng.choice(["true", "false", number]),
    }
    return obj(rng, fields | {key: value for key, value in optional.items() if rng.random() < 0.5})


def offset(rng: random.Random) -> bytes:
    """Return JSON, mostly of an offset of a batch."""
    return mutated(rng, offset_text(rng) if rng.random() < 0.9 else text(rng))


def spark_offset(rng: random.Random) -> str:
    """Return JSON that resembles an offset of Spark's Kafka source, or a starting option."""
    return by_topic(rng, ["0", "5", "17"] if rng.random() < 0.8 else [*NUMBERS, "-2", '"earliest"'])


def offset_log(rng: random.Random) -> bytes:
    """Return a file of Spark's offset log."""
    lines = ["v1" if rng.random() < 0.95 else rng.choice(["v2", "", "\u2028", *TEXTS]), "{}"]
    kinds: list[Callable[[random.Random], str]] = [offset_text, spark_offset, text, lambda _: "-"]
    lines.extend(rng.choice(kinds)(rng) for _ in range(rng.choice([0, 1, 1, 1, 2, 3])))
    return mutated(rng, "\n".join(lines))


def offsets_file(rng: random.Random) -> bytes:
    """Return a file with offsets for ``migrate-offsets``."""
    return mutated(rng, spark_offset(rng) if rng.random() < 0.9 else text(rng))


def starting(rng: random.Random) -> bytes:
    """Return the value of a starting option."""
    kind = rng.random()
    if kind < 0.1:
        return mutated(rng, rng.choice(["earliest", "LATEST", "group", *NUMBERS]))
    if kind < 0.2:
        values = ['"earliest"', "5", '{"0":-2}', *NUMBERS]
        return mutated(rng, obj(rng, {json.dumps(expression(rng))[1:-1]: rng.choice(values)}))
    return mutated(rng, spark_offset(rng) if kind < 0.95 else text(rng))


def is_valid(partition: TopicPartition) -> bool:
    topic, number = partition
    return is_valid_topic_name(topic) and type(number) is int and 0 <= number < 1 << 31


def check_offsets(offsets: dict[TopicPartition, int]) -> None:
    assert all(map(is_valid, offsets))
    assert all(type(number) is int and 0 <= number <= OFFSET_MAX for number in offsets.values())


def check_batch_offset(_rng: random.Random, data: bytes) -> None:
    try:
        content: Any = json.loads(data)  # by pyspark
    except (ValueError, RecursionError):
        return
    check_format(content)
    parsed = BatchOffset.from_json(content)
    check_offsets({partition: start for partition, (start, _) in parsed.ranges.items()})
    check_offsets(parsed.ends)
    assert all(map(is_valid, parsed.partitions | parsed.idle))
    assert from_offset(content) == parsed.ranges
    if len(parsed.known) + len(parsed.idle) > _MAX_WRITTEN:
        return  # several times slower than reading
    again = json.dumps(parsed.to_json())
    assert BatchOffset.from_json(json.loads(again)) == parsed
    assert json.dumps(BatchOffset.from_json(json.loads(again)).to_json()) == again


def check_round_trip(_rng: random.Random, data: bytes) -> None:
    wanted = batch_offset(random.Random(data))
    written = json.dumps(wanted.to_json())
    read = BatchOffset.from_json(json.loads(written))
    assert read == wanted
    assert json.dumps(read.to_json()) == written


def check_checkpoint(rng: random.Random, data: bytes) -> None:
    for folder, content in (("offsets", data), ("commits", b"v1\n{}")):
        (_CHECKPOINT / folder).mkdir(exist_ok=True)
        (_CHECKPOINT / folder / "7").write_bytes(content)
    (_CHECKPOINT / "commits" / "\u00b2").write_bytes(b"")
    check_offsets(checkpoint.read(_CHECKPOINT))


def check_offsets_file(_rng: random.Random, data: bytes) -> None:
    check_offsets(checkpoint.parse(data.decode(errors="replace")))


def check_starting(rng: random.Random, data: bytes) -> None:
    prefix, suffix = rng.choice(["starting", "ending"]), rng.choice(["Offsets", "OffsetsByTimestamp", "Timestamp"])
    value = data.decode(errors="replace")
    default = "group" if prefix == "starting" else "latest"
    parsed = StartingOffsets.parse(OptionReader({f"{prefix}{suffix}": value}), prefix=prefix, default=default)
    for partition in (TopicPartition("orders", 0), TopicPartition("t-1", 2)):
        start = parsed.start_position(partition, -1, checkpoint_offset=None, is_first_assignment=True, is_new=False)
        assert -1 <= start.offset <= OFFSET_MAX
        assert start.timestamp is None or -2 <= start.timestamp <= OFFSET_MAX


#: Each kind of content.
KINDS: dict[str, Kind] = {
    "offset": (offset, check_batch_offset),
    "generated": (lambda rng: rng.randbytes(8), check_round_trip),
    "checkpoint": (offset_log, check_checkpoint),
    "file": (offsets_file, check_offsets_file),
    "starting": (starting, check_starting),
}
#: A million known partitions take 2 s and 200 MB, and as many idle ones the same.
FUZZER = Fuzzer("offsets", KINDS, [5, 2, 2, 1, 2], max_seconds=10.0, max_megabytes=768)
main = FUZZER.main


if __name__ == "__main__":
    sys.exit(main())
