"""Ordered maps of bytes in pages."""

from __future__ import annotations

import random
import secrets
from collections import Counter

import pytest

from zkconsumer.errors import StreamsError
from zkconsumer.topology.stores import MemoryPages, PagedMap
from zkconsumer.topology.stores.pages import JOIN_BYTES, SPLIT_BYTES


class CountingPages(MemoryPages):
    """Counts the reads and writes of each page."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[int] = Counter()
        self.writes: Counter[int] = Counter()

    def get(self, page_id: int, default: object = None) -> bytes | None:  # type: ignore[override]
        self.reads[page_id] += 1
        return super().get(page_id)

    def put(self, page_id: int, data: bytes) -> None:
        self.writes[page_id] += 1
        self[page_id] = data


def key(number: int) -> bytes:
    return f"key-{number:07}".encode()


@pytest.mark.parametrize("size", [10, 400, 6_000])
def test_random_changes_equal_those_of_dictionary(size: int) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    pages = MemoryPages()
    entries, expected, committed = PagedMap(pages), dict[bytes, bytes](), dict[bytes, bytes]()
    for _ in range(3_000):
        name = key(rng.randrange(size))
        match rng.random():
            case x if x < 0.6:
                value = bytes(rng.randrange(200))
                entries.put(name, value)
                expected[name] = value
            case x if x < 0.85:
                assert entries.delete(name) == expected.pop(name, None)
            case x if x < 0.95:
                start, stop = sorted(key(rng.randrange(size)) for _ in range(2))
                inside = sorted((k, v) for k, v in expected.items() if start <= k < stop)
                assert entries.scan(start, stop) == inside
                assert entries.scan(start, stop, reverse=True) == inside[::-1]
            case x if x < 0.96:
                start, stop = sorted(key(rng.randrange(size)) for _ in range(2))
                entries.discard(start, stop)
                expected = {k: v for k, v in expected.items() if not start <= k < stop}
            case x if x < 0.98:
                entries.flush()
                committed = dict(expected)
            case x if x < 0.99:
                entries.rollback()
                expected = dict(committed)
            case _:
                entries.flush()
                committed = dict(expected)
                entries = PagedMap(pages)  # as after a restart
        assert entries.get(name) == expected.get(name)
    assert entries.scan() == sorted(expected.items())


def test_pages_have_4_to_16_kilobytes() -> None:
    pages = MemoryPages()
    entries = PagedMap(pages)
    for number in range(20_000):
        entries.put(key(number * 7919 % 20_000), bytes(20))
    entries.flush()

    sizes = [len(data) for page_id, data in pages.items() if page_id > 0]
    assert max(sizes) <= SPLIT_BYTES
    assert min(sizes) >= JOIN_BYTES


def test_each_page_is_read_and_written_once_per_commit() -> None:
    pages = CountingPages()
    entries = PagedMap(pages)
    for number in range(10_000):
        entries.put(key(number), bytes(20))
    entries.flush()
    pages.reads.clear()
    pages.writes.clear()
    entries = PagedMap(pages)

    for _ in range(3):
        for number in range(0, 10_000, 3):
            entries.put(key(number), bytes(20))
    entries.flush()

    assert set(pages.reads.values()) == {1}
    assert set(pages.writes.values()) == {1}


def test_discard_reads_only_pages_at_its_ends() -> None:
    pages = CountingPages()
    entries = PagedMap(pages)
    for number in range(20_000):
        entries.put(key(number), bytes(20))
    entries.flush()
    before = len(pages)
    entries = PagedMap(pages)
    pages.reads.clear()

    entries.discard(key(100), key(19_900))
    entries.flush()

    assert sum(count for page_id, count in pages.reads.items() if page_id > 0) == 2
    assert len(pages) < before / 10
    assert [k for k, _ in PagedMap(pages).scan()] == [key(n) for n in (*range(100), *range(19_900, 20_000))]


def test_page_of_later_release_is_refused() -> None:
    pages = MemoryPages()
    entries = PagedMap(pages)
    entries.put(b"key", b"value")
    entries.flush()
    pages[1] = b"\x02" + pages[1][1:]

    with pytest.raises(StreamsError, match="has format 2; this release reads format 1: upgrade"):
        PagedMap(pages).get(b"key")


def test_missing_page_is_reported() -> None:
    pages = MemoryPages()
    entries = PagedMap(pages)
    entries.put(b"key", b"value")
    entries.flush()
    del pages[1]

    with pytest.raises(StreamsError, match="state page 1 is missing"):
        PagedMap(pages).get(b"key")
