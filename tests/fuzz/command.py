"""The command line of fuzzers of C modules.

Builds the C file with AddressSanitizer and UndefinedBehaviorSanitizer in a temporary folder, and runs a child program
with it in a Python process that has the sanitizers preloaded. The exit status is 0 if no fault was found, 1 if a fault
was found, and 2 if the fuzzer cannot run. A fault is printed with the command that repeats it.

Execution ``n`` of a seed is deterministic, so ``--runs`` prints the same counts and the same digest each time.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import tempfile
from pathlib import Path

from . import sanitized, selftest


def main(target: sanitized.Target, argv: list[str]) -> int:
    """Parse the command line, run executions and return the exit status."""
    name = target.source.name
    parser = argparse.ArgumentParser(prog=f"python -m {target.command}", description=f"Fuzz {name}.")
    parser.add_argument("--seconds", type=float, default=30, help="seconds to run (default: 30)")
    parser.add_argument("--runs", type=int, help="number of executions, instead of --seconds")
    parser.add_argument("--first", type=int, default=0, help="number of the first execution")
    parser.add_argument("--seed", type=int, help="seed of the random numbers (default: random; it is printed)")
    parser.add_argument("--source", type=Path, default=target.source, help=f"path of {name}")
    parser.add_argument(
        "--self-test",
        nargs="*",
        metavar="CHECK",
        help="remove checks from a copy of the source one at a time, and check that each fault is found",
    )
    options = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    try:
        with tempfile.TemporaryDirectory(prefix="zkconsumer-fuzz-") as directory:
            folder = Path(directory)
            arguments = ["--seed", str(seed), *target.prepare(seed, folder)]
            text = sanitized.read_source(options.source, target.source.parent)
            if options.self_test is not None:
                return selftest.run(folder, target, text, seed, arguments, options.self_test)
            return fuzz(folder, target, text, seed, arguments, options)
    except sanitized.CannotRunError as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2


def fuzz(
    folder: Path, target: sanitized.Target, text: str, seed: int, arguments: list[str], options: argparse.Namespace
) -> int:
    """Run executions, and report a fault."""
    module = sanitized.build(folder, target, text)
    print(f"fuzz: seed {seed}", flush=True)
    limit = ["--runs", str(options.runs)] if options.runs else ["--seconds", str(options.seconds)]
    arguments = [*arguments, "--first", str(options.first), *limit]
    found = sanitized.run_child(folder, target, module, arguments, capture=False)
    if not found:
        return 0
    (execution,) = struct.unpack("<q", (folder / "execution").read_bytes())
    print(
        f"fuzz: execution {execution} of seed {seed} failed with exit status {found.returncode}; to repeat it:\n"
        f"    python -m {target.command} --seed {seed} --first {execution} --runs 1",
        file=sys.stderr,
    )
    return 1
