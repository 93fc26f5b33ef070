"""The process that calls the decoder under the sanitizers; ``python -m tests.fuzz`` starts it.

Some of the results are compared with those of the decoder in Python. The random numbers of an execution depend only on
the seed and on the number of the execution.
"""

from __future__ import annotations

import hashlib
import importlib
import pickle
import random
import struct
import zlib
from pathlib import Path
from typing import Any

from .child import Heap, create_parser, create_stubs, load_extension, run_executions

I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1
CORNERS_8 = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
CORNERS_32 = (0, 1, 2, 7, 8, 60, 127, 128, 0xFFFF, (1 << 31) - 1, -(1 << 31), -1, -2, -8)
CORNERS_64 = (0, 1, -1, -2, 100, 1 << 31, 1 << 32, I64_MAX, I64_MAX - 1, I64_MIN, I64_MIN + 1)
#: Positions and formats of the numbers in the header of an entry.
FIELDS = {
    0: ((0, ">q"), (8, ">i"), (16, ">b"), (17, ">b"), (18, ">i"), (22, ">i")),
    1: ((0, ">q"), (8, ">i"), (16, ">b"), (17, ">b"), (18, ">q"), (26, ">i"), (30, ">i")),
    2: (
        (0, ">q"),
        (8, ">i"),
        (16, ">b"),
        (21, ">h"),
        (23, ">i"),
        (27, ">q"),
        (35, ">q"),
        (43, ">q"),
        (57, ">i"),
    ),
}
CONTROL, LOG_APPEND, CODEC_MASK = 0x20, 0x08, 0x07
STATE_SIZE = 80


class Fuzzer:
    """Calls the decoder with mutated inputs."""

    def __init__(self, native: Any, twin: Any, corpus: tuple[list[bytes], list[Any]], seed: int, compared: int) -> None:
        self.native, self.twin, self.seed, self.compared = native, twin, seed, compared
        self.entries, self.payloads = corpus
        self.heap = Heap()
        self.calls = 0
        self.digest = hashlib.blake2b(digest_size=8)
        self.rng = random.Random()
        self.compares = False

    # ---- one execution ----

    def execute(self, number: int) -> None:
        """Call all functions with one mutated input."""
        self.rng = random.Random(f"{self.seed} {number}")
        self.compares = bool(self.compared) and number % self.compared == 0
        if self.rng.random() < 0.7:
            self.entries_of_a_chunk()
        else:
            self.content_of_an_entry()
        self.heap.release()

    def entries_of_a_chunk(self) -> None:
        """Scan and decode a chunk as ``ChunkReader`` does."""
        rng = self.rng
        data = bytearray().join(rng.choice(self.entries) for _ in range(rng.choice((1, 1, 2, 3))))
        if rng.random() < 0.95:
            self.mutate(data)
        if rng.random() < 0.6:
            self.fix_checksums(data)
        view = self.heap.take(bytes(data), rng.choice((0, 0, 1, 3, 4)))
        self.call("crc32c", view)
        self.call("next_offset", view, I64_MIN, I64_MIN, I64_MAX)
        self.call("next_offset", view, *(rng.choice((*CORNERS_64, 99, 100, 103, 104)) for _ in range(3)))
        self.wild_calls(view)
        flags = rng.randrange(4)
        start_offset = rng.choice((0, 0, 0, 100, 103, I64_MIN, I64_MAX))
        until = rng.choice((I64_MAX, I64_MAX, I64_MAX, 104, 0))
        limits = rng.choice((1, 3, 65536)), rng.choice((1, 300, 8 << 20))
        at = 0
        for _ in range(30):
            found = self.call("scan", view, at, start_offset, until, *limits, flags)
            if not isinstance(found, tuple):
                return
            begin, end, _, magic, attributes, rows, payload, *numbers = found
            if not (at <= begin < end <= len(view) and begin <= payload <= end and rows >= 0):
                raise AssertionError(f"scan returned an invalid segment: {found}")
            at = end
            first = (*numbers[:3],)
            if magic == 2 and not attributes & (CODEC_MASK | CONTROL):
                self.decode(view, begin, end, (2, attributes, *first, -1), rows, start_offset, until)
            elif magic == 2:
                self.decode(view, payload, end, (2, attributes, *first, rows), rows, start_offset, until)
            elif attributes & CODEC_MASK:
                self.decode(view, payload, end, (magic, attributes, *first, rows), rows, start_offset, until)
            else:
                self.decode(view, begin, end, (magic, 0, 0, 0, 0, rows), rows, start_offset, until)

    def content_of_an_entry(self) -> None:
        """Decode the decompressed payload of an entry."""
        rng = self.rng
        content, magic, attributes, base_offset, first, last, rows = rng.choice(self.payloads)
        data = bytearray(content)
        if rng.random() < 0.95:
            self.mutate(data)
        view = self.heap.take(bytes(data), rng.choice((0, 0, 1, 3, 4)))
        rows = max(0, rows + rng.choice((0, 0, 0, 0, -1, 1, 2)))
        self.wild_calls(view)
        if magic < 2:
            self.call("scan", view, 0, I64_MIN, I64_MAX, I64_MAX, I64_MAX, rng.randrange(2))
        else:
            self.call("split", view, 0, len(view), rows, rng.choice((1, 2, 65536)), rng.choice((1, 30, 300)))
        self.decode(view, 0, len(view), (magic, attributes, base_offset, first, last, rows), rows, I64_MIN, I64_MAX)

    # ---- calls ----

    def call(self, name: str, *args: Any) -> Any:
        """Call a function and return its result or error; compare it with the decoder in Python."""
        result = self.caught(getattr(self.native, name), args)
        self.digest.update(repr(result).encode())
        if self.compares:
            expected = self.caught(getattr(self.twin, name), args)
            if result != expected:
                raise AssertionError(f"{name}: {result!r}, in Python {expected!r}")
        return result

    def caught(self, function: Any, args: tuple[Any, ...]) -> Any:
        self.calls += 1
        try:
            result = function(*args)
        except (ValueError, IndexError) as error:
            return repr(error)
        return tuple(result) if isinstance(result, tuple) else result

    def wild_calls(self, view: memoryview) -> None:
        """Call functions with arbitrary numbers."""
        rng = self.rng
        size = len(view)

        def place() -> int:
            return rng.choice((0, 1, size - 1, size, size + 1, -1, rng.randrange(size + 1), I64_MAX, I64_MIN))

        self.call("scan", view, place(), *(rng.choice(CORNERS_64) for _ in range(4)), rng.randrange(4))
        count = rng.choice((-1, 0, 1, 5, I64_MAX, I64_MIN))
        start, end = place(), place()
        self.call("measure", view, start, end, count)
        limits = rng.choice((1, 2, 65536, I64_MAX, I64_MIN)), rng.choice((0, 1, 30, 300, I64_MAX, I64_MIN))
        self.call("split", view, start, end, count, *limits)
        numbers = (
            rng.choice((0, 1, 2, 2, -1, 3)),
            rng.choice((0, 8)),
            *(rng.choice(CORNERS_64) for _ in range(3)),
            count,
        )
        if size <= 2000:
            self.decode(view, start, end, numbers, rng.randrange(20), rng.choice(CORNERS_64), rng.choice(CORNERS_64))

    def decode(
        self, view: memoryview, start: int, end: int, numbers: tuple[int, ...], rows: int, low: int, high: int
    ) -> None:
        """Decode into columns that are large enough, or into smaller ones, or with wrong counters."""
        rng = self.rng
        rows, size = min(rows, 2000), max(0, min(end, len(view)) - start) if start >= 0 else 10
        headers = None
        sizes = [8 * rows, 8 * rows, 4 * rows, *2 * [4 * rows + 4, (rows + 7) // 8, size]]
        if rng.random() < 0.6:
            measured = self.call("measure", view, start, end, numbers[-1]) if numbers[0] == 2 else (0, 0, 0)
            count, names, contents = measured if isinstance(measured, tuple) else (1, 9, 9)
            ends, bits = 4 * count + 4, (count + 7) // 8
            headers = [4 * rows + 4, (rows + 7) // 8, ends, bits, names, ends, bits, contents]
        if rng.random() < 0.4:
            self.shrink(sizes if headers is None or rng.random() < 0.6 else headers)
        state, is_wild = bytes(STATE_SIZE), rng.random() < 0.2
        if is_wild:
            state = self.wrong_counters(rows, size)
        scale = rng.choice((1, 1000))
        args = (start, end, *numbers, low, high, scale)
        ours = self.columns(sizes), headers and self.columns(headers)
        counters = self.heap.take(state)
        failed = self.caught(self.native.decode, (view, *args, counters, *ours))
        result = [failed, bytes(counters), *(bytes(c) for columns in ours for c in columns or ())]
        self.digest.update(repr(result[:2]).encode())
        if self.compares and not is_wild and all(n % 4 == 0 for n in self.whole_numbers(sizes, headers)):
            self.compare_decode(view, args, sizes, headers, result)

    def wrong_counters(self, rows: int, size: int) -> bytes:
        """Return a state with one or two wrong counters, or a truncated one."""
        rng = self.rng
        state = bytearray(STATE_SIZE)
        for _ in range(rng.choice((1, 1, 2))):
            value = rng.choice((rng.randrange(rows + 3), size, size + 1, *CORNERS_64))
            struct.pack_into("=q", state, 8 * rng.randrange(STATE_SIZE // 8), value)
        return bytes(state if rng.random() < 0.8 else state[: rng.randrange(STATE_SIZE)])

    def columns(self, sizes: list[int]) -> tuple[memoryview, ...]:
        return tuple(self.heap.take(b"\xaa" * size) for size in sizes)

    @staticmethod
    def whole_numbers(sizes: list[int], headers: list[int] | None) -> list[float]:
        """Return the sizes that must be multiples of 4 for the decoder in Python; half of those that must be of 8."""
        found: list[float] = [sizes[0] / 2, sizes[1] / 2, sizes[2], sizes[3], sizes[6]]
        return found if headers is None else [*found, headers[0], headers[2], headers[5]]

    def compare_decode(
        self,
        view: memoryview,
        args: tuple[int, ...],
        sizes: list[int],
        headers: list[int] | None,
        result: list[Any],
    ) -> None:
        columns = tuple(bytearray(b"\xaa" * size) for size in sizes)
        header_columns = None if headers is None else tuple(bytearray(b"\xaa" * size) for size in headers)
        counters = bytearray(STATE_SIZE)
        failed = self.caught(self.twin.decode, (view, *args, counters, columns, header_columns))
        expected = [failed, bytes(counters), *map(bytes, columns), *map(bytes, header_columns or ())]
        if result != expected:
            where = [i for i, (one, other) in enumerate(zip(result, expected, strict=True)) if one != other]
            raise AssertionError(f"decode{args}: {result[:2]}, in Python {expected[:2]}; differs in {where}")

    # ---- mutations ----

    def shrink(self, sizes: list[int]) -> None:
        """Make some columns too small."""
        rng = self.rng
        for _ in range(rng.choice((1, 1, 2))):
            i = rng.randrange(len(sizes))
            sizes[i] = max(0, rng.choice((sizes[i] - 1, sizes[i] - 4, sizes[i] - 8, sizes[i] // 2 & ~7, 0)))

    def mutate(self, data: bytearray) -> None:
        rng = self.rng
        for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
            if not data:
                return
            at = rng.randrange(len(data))
            kind = rng.randrange(10)
            if kind == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                data[at] = rng.choice(CORNERS_8)
            elif kind == 2:
                data[at] = rng.randrange(256)
            elif kind == 3 and at + 4 <= len(data):
                struct.pack_into(">i", data, at, rng.choice((*CORNERS_32, len(data) - at, len(data) - at - 4)))
            elif kind == 4:
                del data[at : at + rng.choice((1, 1, 2, 8, 40))]
            elif kind == 5:
                data[at:at] = rng.randbytes(rng.choice((1, 1, 2, 9)))
            elif kind == 6:
                data[at:at] = data[at : at + rng.randrange(1, 60)]
            elif kind == 7:
                del data[at:]
            else:
                self.mutate_field(data)

    def mutate_field(self, data: bytearray) -> None:
        """Change one number in the header of an entry."""
        rng = self.rng
        starts = [at for at, _ in bounds(data)]
        if not starts:
            return
        at = rng.choice(starts)
        position, fmt = rng.choice(FIELDS.get(data[at + 16], FIELDS[2]))
        if at + position + struct.calcsize(fmt) > len(data):
            return
        (old,) = struct.unpack_from(fmt, data, at + position)
        corners = {
            "q": CORNERS_64,
            "i": CORNERS_32,
            "h": (1, 2, 4, 8, 16, 32, 0x38, -1),
            "b": (0, 1, 2, 3, 8, -1),
        }[fmt[1]]
        value = rng.choice((*corners, old - 1, old + 1, old ^ 1, old ^ 8))
        bits = 8 * struct.calcsize(fmt)
        struct.pack_into(fmt, data, at + position, (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)))

    def fix_checksums(self, data: bytearray) -> None:
        for at, end in bounds(data):
            if data[at + 16] == 2 and end - at > 21:
                struct.pack_into(">I", data, at + 17, self.native.crc32c(bytes(data[at + 21 : end])))
            elif data[at + 16] < 2:
                struct.pack_into(">I", data, at + 12, zlib.crc32(data[at + 16 : end]))


def bounds(data: bytearray) -> list[tuple[int, int]]:
    """Return start and end of each entry, up to the first invalid size."""
    found, at = [], 0
    while at + 17 <= len(data):
        end = at + 12 + struct.unpack_from(">i", data, at + 8)[0]
        if not at + 17 <= end <= len(data):
            break
        found.append((at, end))
        at = end
    return found


def main() -> None:
    parser = create_parser()
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--compared", type=int, default=4, help="compare each n-th execution; 0 for none")
    options = parser.parse_args()
    corpus = pickle.loads(Path(options.corpus).read_bytes())
    create_stubs(options.package, "zkconsumer")
    twin = importlib.import_module("zkconsumer.fetcher.decode_py")
    fuzzer = Fuzzer(load_extension("_decode", options.module), twin, corpus, options.seed, options.compared)
    run_executions(options, fuzzer)


if __name__ == "__main__":
    main()
