"""The process that calls the compiled maps under the sanitizers; ``python -m tests.fuzz.pages`` starts it.

Each execution makes random calls of the compiled maps and of those in Python, with pages that fail or are mutated, and
compares results, errors and pages.
"""

from __future__ import annotations

import hashlib
import importlib
import random
from typing import Any

from . import child

PACKAGES = ("zkconsumer", "zkconsumer.topology", "zkconsumer.topology.stores")


class PageFuzzer:
    """Makes calls of two implementations.

    Args:
        calls: the module ``page_calls``.
        compiled: the compiled classes.
        twin: those in Python.
        seed: seed of the random numbers.
    """

    def __init__(self, calls: Any, compiled: Any, twin: Any, seed: int) -> None:
        self._calls, self._compiled, self._twin, self._seed = calls, compiled, twin, seed
        self.calls = 0
        self.digest = hashlib.blake2b(digest_size=8)

    def execute(self, number: int) -> None:
        """Make the calls of an execution."""
        rng = random.Random(f"{self._seed} {number}")
        calls = self._calls.PageCalls(self._compiled, self._twin, rng)
        calls.run(rng.choice((30, 100, 300)))
        self.calls += calls.count
        self.digest.update(calls.digest.digest())


def main() -> None:
    options = child.create_parser().parse_args()
    child.create_stubs(options.package, *PACKAGES)
    stores = PACKAGES[-1]
    compiled = child.load_extension(f"{stores}._pages", options.module)
    calls = importlib.import_module(f"{__package__}.page_calls")
    pages, serde_map = (importlib.import_module(f"{stores}.{name}") for name in ("pages", "serde_map"))
    fuzzer = PageFuzzer(
        calls,
        calls.Classes(compiled.PagedMap, compiled.SerdeMap),
        calls.Classes(pages.PagedMap, serde_map.SerdeMap),
        options.seed,
    )
    child.run_executions(options, fuzzer)


if __name__ == "__main__":
    main()
