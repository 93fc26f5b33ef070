"""The process that calls the compiled loop under the sanitizers; ``python -m tests.fuzz.loop`` starts it.

Each execution makes random calls of the compiled module and of the one in Python, with nodes that fail or change what
the loop reads, and compares results and errors.
"""

from __future__ import annotations

import hashlib
import importlib
import random
from typing import Any

from . import child

PACKAGES = ("zkconsumer", "zkconsumer.topology")


class LoopFuzzer:
    """Makes calls of two implementations.

    Args:
        calls: the module ``loop_calls``.
        compiled: the compiled module.
        twin: the one in Python.
        seed: seed of the random numbers.
    """

    def __init__(self, calls: Any, compiled: Any, twin: Any, seed: int) -> None:
        self._calls, self._compiled, self._twin, self._seed = calls, compiled, twin, seed
        self.calls = 0
        self.digest = hashlib.blake2b(digest_size=8)

    def execute(self, number: int) -> None:
        """Make the calls of an execution."""
        rng = random.Random(f"{self._seed} {number}")
        calls = self._calls.LoopCalls(self._compiled, self._twin, rng)
        calls.run(20)
        self.calls += calls.count
        self.digest.update(calls.digest.digest())


def main() -> None:
    options = child.create_parser().parse_args()
    child.create_stubs(options.package, *PACKAGES)
    topology = PACKAGES[-1]
    compiled = child.load_extension(f"{topology}._loop", options.module)
    calls = importlib.import_module(f"{__package__}.loop_calls")
    twin = importlib.import_module(f"{topology}.loop_py")
    child.run_executions(options, LoopFuzzer(calls, compiled, twin, options.seed))


if __name__ == "__main__":
    main()
