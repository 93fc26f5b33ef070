"""The inputs that the fuzzer mutates: valid entries of each format and codec, and payloads of compressed entries."""

from __future__ import annotations

import pickle
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers import batches
from helpers.batches import Record

#: Payload of an entry: bytes, format, attributes, base offset, first and largest timestamp, records.
Payload = tuple[bytes, int, int, int, int, int, int]


def _random_bytes(rng: random.Random, size: int) -> bytes | None:
    kind = rng.random()
    if kind < 0.15:
        return None
    return b"" if kind < 0.25 else rng.randbytes(rng.randrange(1, size))


def random_records(rng: random.Random, start: int, count: int, size: int) -> list[Record]:
    records, offset = [], start
    for _ in range(count):
        headers = tuple(
            (rng.choice(["", "h", "name", "\u00fc\u20ac"]), _random_bytes(rng, 20)) for _ in range(rng.randrange(4))
        )
        timestamp = rng.choice([1_600_000_000_000 + rng.randrange(-100_000, 100_000), -1, 0, 1 << 62])
        key, value = _random_bytes(rng, size), _random_bytes(rng, size)
        records.append(Record(offset, timestamp, key, value, headers if rng.random() < 0.5 else ()))
        offset += rng.choice([1, 1, 1, 2, 500])
    return records


def make_corpus(seed: int, path: Path) -> None:
    """Write ``(entries, payloads)`` to a file for the child process, which has no codecs."""
    rng = random.Random(f"corpus {seed}")
    entries: list[bytes] = [*batches.GOLDEN.values()]
    payloads: list[Payload] = []
    for magic, codecs in batches.CODECS.items():
        for codec in codecs:
            for log_append_time in (None, 1_700_000_000_000) if magic else (None,):
                records = random_records(rng, 100, rng.randrange(1, 12), 40)
                entries.append(
                    batches.entry(magic, records, codec, log_append_time=log_append_time, raw_snappy=rng.random() < 0.5)
                )
        records = random_records(rng, 0, rng.randrange(1, 20), 60)
        if magic == 2:
            first, last = records[0].timestamp, max(record.timestamp for record in records)
            content = b"".join(batches.encoded_record(record, 0, first) for record in records)
            payloads += [(content, 2, flags, 1000, first, last, len(records)) for flags in (0, 8)]
        else:
            content = batches.message_set(magic, records)
            payloads += [(content, magic, flags, 1000, 5, 7, len(records)) for flags in (0, 8)]
    entries += [
        batches.batch(random_records(rng, 0, 300, 10)),
        batches.batch(random_records(rng, 0, 4, 9000)),
        batches.batch(random_records(rng, 5, 4, 30), producer_id=4242, transactional=True),
        batches.control_batch(9, 4242, commit=False),
        batches.control_batch(9, 4242, commit=True),
        batches.batch([], base_offset=3, last_offset=8),
        batches.batch(random_records(rng, 5, 3, 30), delete_horizon=1_650_000_000_000),
    ]
    path.write_bytes(pickle.dumps((entries, payloads)))
