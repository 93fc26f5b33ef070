"""Ordered maps of bytes in pages."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

from zkconsumer.errors import StreamsError
from zkconsumer.topology.stores import _pages, page_format, pages
from zkconsumer.topology.stores.pages import MemoryPages, PagedMap, PageLimits

PAGE_BYTES = PageLimits().page_bytes


@pytest.fixture(autouse=True, params=[_pages.PagedMap, pages.PagedMap], ids=["c", "python"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with the compiled map and with the one in Python."""
    monkeypatch.setitem(globals(), "PagedMap", request.param)


class CountingPages(MemoryPages):
    """Counts the reads and writes of each page."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[int] = Counter()
        self.writes: Counter[int] = Counter()

    def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
        self.reads.update(page_ids)
        return super().read(page_ids)

    def finish_commit(self, changes: Mapping[int, bytes | None]) -> None:
        self.writes.update(changes.keys())
        super().finish_commit(changes)


def commit(entries: PagedMap) -> None:
    """Commit the changes of a map."""
    changes = entries.collect_changes()
    entries.write(changes)
    entries.finish_commit(changes)


def key(number: int) -> bytes:
    return f"key-{number:07}".encode()


def filled(pages: MemoryPages, count: int) -> PagedMap:
    """Return a map with entries for ascending keys, after a commit."""
    entries = PagedMap(pages)
    for number in range(count):
        entries.put(key(number), bytes(20))
    commit(entries)
    return entries


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("size", [10, 400, 6_000])
def test_random_changes_equal_those_of_dictionary(size: int, is_stored: bool) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    pages = MemoryPages() if is_stored else None
    limits = PageLimits(rng.choice([1_024, 16_384]), rng.choice([5_000, 1 << 20]))
    entries, expected, committed = PagedMap(pages, limits=limits), dict[bytes, bytes](), dict[bytes, bytes]()
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
                commit(entries)
                committed = dict(expected)
            case x if x < 0.99:
                entries.rollback()
                expected = dict(committed)
            case _:
                commit(entries)
                committed = dict(expected)
                if is_stored:
                    entries = PagedMap(pages, limits=limits)  # as after a restart
        assert entries.get(name) == expected.get(name)
    assert entries.scan() == sorted(expected.items())


@pytest.mark.parametrize("page_bytes", [1_024, 16_384, 65_536])
def test_pages_have_quarter_to_whole_size(page_bytes: int) -> None:
    pages = MemoryPages()
    entries = PagedMap(pages, limits=PageLimits(page_bytes))
    for number in range(20_000):
        entries.put(key(number * 7919 % 20_000), bytes(20))
    commit(entries)

    sizes = [len(data) for page_id, data in pages.items() if page_id > 0]
    assert max(sizes) <= page_bytes
    assert min(sizes) >= page_bytes / 4
    assert max(len(data) for page_id, data in pages.items() if page_id < 0) <= page_bytes


def test_each_page_is_read_and_written_once_per_commit() -> None:
    pages = CountingPages()
    entries = filled(pages, 10_000)
    pages.reads.clear()
    pages.writes.clear()
    entries = PagedMap(pages)

    for _ in range(3):
        for number in range(0, 10_000, 3):
            entries.put(key(number), bytes(20))
    commit(entries)

    assert set(pages.reads.values()) == {1}
    assert set(pages.writes.values()) == {1}


def test_discard_reads_only_pages_at_its_ends() -> None:
    pages = CountingPages()
    entries = filled(pages, 20_000)
    before = len(pages)
    entries = PagedMap(pages)
    pages.reads.clear()

    entries.discard(key(100), key(19_900))
    commit(entries)

    assert sum(count for page_id, count in pages.reads.items() if page_id > 0) == 2
    assert len(pages) < before / 10
    assert [k for k, _ in PagedMap(pages).scan()] == [key(n) for n in (*range(100), *range(19_900, 20_000))]


def test_page_of_later_release_is_rejected() -> None:
    pages = MemoryPages()
    entries = PagedMap(pages)
    entries.put(b"key", b"value")
    commit(entries)
    pages[1] = b"\x02" + pages[1][1:]

    with pytest.raises(
        StreamsError,
        match="store 's': page 1 in memory has format 2, which is newer than the supported format 1; "
        "upgrade zkconsumer$",
    ):
        PagedMap(pages, "s").get(b"key")


def test_missing_page_is_reported() -> None:
    pages = MemoryPages()
    entries = PagedMap(pages)
    entries.put(b"key", b"value")
    commit(entries)
    del pages[1]

    with pytest.raises(
        StreamsError, match="store 's': page 1 in memory is corrupt: page 1 does not exist; restore it from a backup"
    ):
        PagedMap(pages, "s").get(b"key")


@pytest.mark.parametrize("page_id", [0, -1, 1])
def test_truncated_pages_are_reported(page_id: int) -> None:
    pages = MemoryPages()
    entries = PagedMap(pages)
    entries.put(b"key", b"value")
    entries.put(b"other", b"value")
    commit(entries)
    whole = pages[page_id]
    for length in range(len(whole)):
        pages[page_id] = whole[:length]
        with pytest.raises(
            StreamsError,
            match=f"store 's': {'page 1' if page_id == 1 else 'the directory'} in memory is corrupt: expected",
        ):
            PagedMap(pages, "s").get(b"key")


def filled_directory(count: int) -> tuple[MemoryPages, list[bytes], list[int]]:
    """Return the pages of a map, and the first keys and the ids in its directory."""
    pages = MemoryPages()
    filled(pages, count)
    header = page_format.MapHeader.decode(pages[0])
    return pages, *page_format.decode_directory(pages[-1], header.next_id)


def test_page_with_keys_out_of_order_is_reported() -> None:
    pages, _, _ = filled_directory(10)
    pages[1] = pages[1].replace(key(3), key(5))

    with pytest.raises(StreamsError, match="store 's': page 1 in memory is corrupt: keys are not sorted"):
        PagedMap(pages, "s").get(key(1))


def test_page_in_place_of_another_is_reported() -> None:
    pages, first_keys, ids = filled_directory(2_000)
    pages[ids[0]], pages[ids[1]] = pages[ids[1]], pages[ids[0]]

    for first in first_keys[:2]:
        with pytest.raises(
            StreamsError, match=r"store 's': page \d+ in memory is corrupt: a key is outside the key range of the page"
        ):
            PagedMap(pages, "s").get(first)


@pytest.mark.parametrize(
    ("first_keys", "ids", "message"),
    [
        ([b"", b"b", b"a"], [1, 2, 3], "keys are not sorted"),
        ([b"", b"a", b"a"], [1, 2, 3], "keys are not sorted"),
        ([b"a", b"b"], [1, 2], "the first key must be empty, and page ids must be unique"),
        ([b"", b"b"], [1, 1], "the first key must be empty, and page ids must be unique"),
        ([b"", b"b"], [1, 0], "the first key must be empty, and page ids must be unique"),
        ([b"", b"b"], [1, -1], "the first key must be empty, and page ids must be unique"),
        ([b"", b"b"], [1, 99], "the first key must be empty, and page ids must be unique"),
        ([], [], "the first key must be empty, and page ids must be unique"),
    ],
)
def test_invalid_directory_is_reported(first_keys: list[bytes], ids: list[int], message: str) -> None:
    pages, _, _ = filled_directory(2_000)
    [pages[-1]] = page_format.encode_directory(first_keys, ids, PAGE_BYTES)

    with pytest.raises(StreamsError, match=f"store 's': the directory in memory is corrupt: {message}"):
        PagedMap(pages, "s")


@pytest.mark.parametrize("count", [10, 2_000])
def test_directory_of_wrong_length_is_reported(count: int) -> None:
    pages, _, _ = filled_directory(count)
    pages[-1] += b"x"

    with pytest.raises(StreamsError, match=r"store 's': the directory in memory is corrupt: expected \d+ bytes, got"):
        PagedMap(pages, "s")


def test_pages_of_other_layout_are_rejected() -> None:
    pages = MemoryPages()
    entries = PagedMap(pages, "s", "WindowStore, segments of 60000 ms")
    entries.put(b"key", b"value")
    commit(entries)

    with pytest.raises(
        StreamsError,
        match="store 's': the entries in memory have layout 'WindowStore, segments of 60000 ms', expected "
        "'KeyValueStore'; restore the store's previous declaration",
    ):
        PagedMap(pages, "s", "KeyValueStore")


def test_memory_of_unchanged_pages_is_limited() -> None:
    pages = CountingPages()
    filled(pages, 20_000)
    entries = PagedMap(pages, limits=PageLimits(memory_bytes=40_000))
    pages.reads.clear()

    for _ in range(2):
        for number in range(0, 20_000, 100):
            assert entries.get(key(number)) == bytes(20)
            assert entries.memory_bytes <= 40_000
        assert len(entries.scan()) == 20_000
        assert entries.memory_bytes <= 40_000

    assert sum(count for page_id, count in pages.reads.items() if page_id > 0) >= 4 * (len(pages) - 10)


def test_changed_pages_leave_memory_after_commit() -> None:
    pages = MemoryPages()
    entries = PagedMap(pages, limits=PageLimits(memory_bytes=40_000))
    for number in range(20_000):
        entries.put(key(number), bytes(20))
    assert entries.memory_bytes > 40_000

    commit(entries)

    assert entries.memory_bytes <= 40_000
    assert [name for name, _ in entries.scan()] == [key(number) for number in range(20_000)]


def test_memory_is_that_of_encoded_pages() -> None:
    pages = MemoryPages()
    entries = filled(pages, 5_000)
    for number in range(0, 5_000, 3):
        entries.delete(key(number))
    for number in range(0, 5_000, 7):
        entries.put(key(number), bytes(number % 90))
    entries.discard(key(1_000), key(3_000))
    commit(entries)

    assert entries.memory_bytes == sum(len(data) for page_id, data in pages.items() if page_id > 0)


def test_scan_reads_several_pages_with_one_call() -> None:
    class Calls(MemoryPages):
        calls = 0

        def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
            self.calls += 1
            return super().read(page_ids)

    pages = Calls()
    filled(pages, 20_000)
    entries = PagedMap(pages)
    pages.calls = 0

    assert len(entries.scan()) == 20_000
    assert pages.calls == -(-(len(pages) - 2) // 16)


def test_map_without_pages_encodes_nothing() -> None:
    entries = PagedMap(None)
    for number in range(2_000):
        entries.put(key(number), bytes(20))

    assert entries.collect_changes() == {}
    entries.finish_commit({})
    entries.discard(key(100), key(1_900))
    entries.put(key(5), b"changed")
    entries.put(key(3_000), b"new")
    entries.delete(key(6))
    entries.rollback()

    assert entries.scan() == [(key(number), bytes(20)) for number in range(2_000)]


def test_read_only_map_rejects_changes() -> None:
    entries = PagedMap(MemoryPages(), "g")
    entries.put(b"a", b"1")
    entries.is_read_only = True
    changes: list[Callable[[], object]] = [
        lambda: entries.put(b"a", b"2"),
        lambda: entries.delete(b"a"),
        lambda: entries.discard(b"", b"b"),
    ]
    for change in changes:
        with pytest.raises(StreamsError, match="global store 'g' is read-only: only its own processor can update it"):
            change()
    assert entries.get(b"a") == b"1"


def test_changes_are_collected_without_being_marked_as_written() -> None:
    pages = MemoryPages()
    entries = filled(pages, 2_000)
    expected, committed = entries.scan(), dict(pages)
    for number in range(0, 2_000, 2):
        entries.put(key(number), bytes(40))
    for number in range(500, 1_500):
        entries.delete(key(number))

    changes = entries.collect_changes()
    entries.write(changes)

    assert entries.collect_changes() == changes
    assert dict(pages) == committed
    entries.rollback()
    assert entries.scan() == expected
    assert entries.collect_changes() == {}


def test_map_is_closed_if_its_rollback_fails() -> None:
    pages = MemoryPages()
    entries = filled(pages, 10)
    pages[0] = b""

    with pytest.raises(StreamsError, match="the directory in memory is corrupt"):
        entries.rollback()
    with pytest.raises(StreamsError, match="store '' is closed"):
        entries.get(key(1))


@pytest.mark.parametrize(
    ("returned", "message"), [([], "1 pages, got 0"), ([bytearray()], "bytes or None, got bytearray")]
)
def test_wrong_result_of_page_store_is_reported(returned: list[bytes | None], message: str) -> None:
    class Wrong(MemoryPages):
        def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
            return returned

    with pytest.raises(StreamsError, match=f"store 's': the page store must return {message}"):
        PagedMap(Wrong(), "s")


def test_header_with_impossible_numbers_is_reported() -> None:
    pages, _, _ = filled_directory(10)
    header = page_format.MapHeader.decode(pages[0])
    for changed in (header._replace(next_id=(1 << 63) - 1), header._replace(entries=-1 << 63)):
        pages[0] = changed.encode()
        with pytest.raises(
            StreamsError,
            match=r"the directory in memory is corrupt: entry count -?\d+ or next page id \d+ is out of range",
        ):
            PagedMap(pages, "s")


def test_directory_with_impossible_size_is_reported() -> None:
    pages, _, _ = filled_directory(10)
    pages[0] = page_format.MapHeader.decode(pages[0])._replace(directory_pages=(1 << 32) - 1).encode()

    with pytest.raises(StreamsError, match="the directory in memory is corrupt: page -2 does not exist"):
        PagedMap(pages, "s")


def test_rollback_without_pages_restores_discarded_keys_in_order() -> None:
    limits = PageLimits(512)
    entries = PagedMap(None, limits=limits)
    for number in range(2_000):
        entries.put(key(number * 7919 % 2_000), bytes(20))
    entries.finish_commit({})
    expected = PagedMap(None, limits=limits)
    for number in range(2_000):
        expected.put(key(number), bytes(20))

    entries.discard(b"", b"l")
    entries.rollback()

    assert entries.scan() == expected.scan()
    assert entries.memory_bytes == expected.memory_bytes


def test_new_map_is_usable_without_memory() -> None:
    entries = PagedMap(MemoryPages(), limits=PageLimits(memory_bytes=0))

    assert entries.delete(b"absent") is None
    assert entries.get(b"absent") is None
