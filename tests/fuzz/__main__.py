"""Fuzz the compiled decoder: ``python -m tests.fuzz --seconds 30``.

Builds ``_decode.c`` with AddressSanitizer and UndefinedBehaviorSanitizer in a temporary folder, and runs ``child.py``
with it in a Python process that has the sanitizers preloaded. The exit status is 0 if no fault was found, 1 if a fault
was found, and 2 if the fuzzer cannot run. A fault is printed with the command that repeats it.

An execution calls all functions with one mutated input. Execution ``n`` of a seed is deterministic, so ``--runs``
prints the same counts and the same digest each time.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import tempfile
from pathlib import Path

from . import sanitized, selftest
from .corpus import make_corpus


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30, help="seconds to run (default: 30)")
    parser.add_argument("--runs", type=int, help="number of executions, instead of --seconds")
    parser.add_argument("--first", type=int, default=0, help="number of the first execution")
    parser.add_argument("--seed", type=int, help="seed of the random numbers (default: random; it is printed)")
    parser.add_argument("--source", type=Path, default=sanitized.SOURCE, help="path of _decode.c")
    parser.add_argument(
        "--self-test",
        nargs="*",
        metavar="CHECK",
        help="remove bounds checks from a copy of the source one at a time, and check that each fault is found",
    )
    options = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    try:
        with tempfile.TemporaryDirectory(prefix="zkconsumer-fuzz-") as name:
            folder = Path(name)
            make_corpus(seed, folder / "corpus")
            if options.self_test is not None:
                return selftest.run(folder, seed, options.source, options.self_test)
            return fuzz(folder, seed, options)
    except sanitized.CannotRunError as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2


def fuzz(folder: Path, seed: int, options: argparse.Namespace) -> int:
    module = sanitized.build(folder, options.source.read_text())
    print(f"fuzz: seed {seed}", flush=True)
    arguments = ["--seed", str(seed), "--first", str(options.first)]
    arguments += ["--runs", str(options.runs)] if options.runs else ["--seconds", str(options.seconds)]
    found = sanitized.run_child(folder, module, arguments, capture=False)
    if not found:
        return 0
    (execution,) = struct.unpack("<q", (folder / "execution").read_bytes())
    print(
        f"fuzz: execution {execution} of seed {seed} failed with exit status {found.returncode}; to repeat it:\n"
        f"    python -m tests.fuzz --seed {seed} --first {execution} --runs 1",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
