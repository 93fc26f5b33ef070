"""The process that calls a compiled module under the sanitizers; ``python -m tests.fuzz twin`` starts it.

Each execution makes random calls of the compiled module and of its twin in Python, and compares results and errors.
Arguments can be invalid; callbacks can fail or change what the call reads.
"""

from __future__ import annotations

import hashlib
import importlib
import random
from typing import Any

from .. import child
from .targets import TWINS, Twin


class TwinFuzzer:
    """Makes calls of two implementations.

    Args:
        twin: what is compared.
        compiled: the compiled module.
        seed: seed of the random numbers.
    """

    def __init__(self, twin: Twin, compiled: Any, seed: int) -> None:
        # These modules import zkconsumer, which needs the stubs of its packages.
        sides = importlib.import_module(f"{__package__}.sides")
        module, name = twin.calls
        self._class = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        package = compiled.__name__.rpartition(".")[0]
        self._compiled = compiled
        self._twin = sides.join_modules(*(importlib.import_module(f"{package}.{name}") for name in twin.modules))
        self._counts, self._seed = twin.counts, seed
        self.calls = 0
        self.digest = hashlib.blake2b(digest_size=8)

    def execute(self, number: int) -> None:
        """Make the calls of an execution."""
        rng = random.Random(f"{self._seed} {number}")
        calls = self._class(self._compiled, self._twin, rng)
        calls.run(rng.choice(self._counts))
        self.calls += calls.count
        self.digest.update(calls.digest.digest())


def main() -> None:
    parser = child.create_parser()
    parser.add_argument("--twin", choices=TWINS, required=True)
    options = parser.parse_args()
    twin = TWINS[options.twin]
    name = f"zkconsumer.{twin.extension}"
    parts = name.split(".")
    child.create_stubs(options.package, *(".".join(parts[:count]) for count in range(1, len(parts))))
    child.run_executions(options, TwinFuzzer(twin, child.load_extension(name, options.module), options.seed))


if __name__ == "__main__":
    main()
