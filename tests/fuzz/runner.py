"""Runs fuzzers of content that other programs write: parsing returns a valid result or raises an error of this package.

The message of the error is short, and time and memory are limited. Execution ``n`` of a seed is deterministic. The exit
status is 0 if no fault was found, else 1. A fault is printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zkconsumer.errors import ZkConsumerError

MAX_MESSAGE = 1500

#: Generates the content, and parses and uses it.
Kind = tuple[Callable[[random.Random], bytes], Callable[[random.Random, bytes], None]]


@dataclass(frozen=True)
class Fuzzer:
    """A fuzzer of several kinds of content.

    Attributes:
        name: name of its module in this package.
        kinds: each kind of content.
        weights: frequency of each kind.
        max_seconds: limit of the CPU time of one execution.
        max_megabytes: limit of the growth of the resident memory.
    """

    name: str
    kinds: Mapping[str, Kind]
    weights: list[int]
    max_seconds: float = 5.0
    max_megabytes: int = 256

    def execute(self, seed: int, execution: int) -> tuple[str, bool]:
        """Run one execution; return the kind of content, and whether it was valid.

        Raises:
            AssertionError: a limit was exceeded, or the result is not valid.
            Exception: an error that is not one of this package.
        """
        rng = random.Random(f"{seed}-{execution}")
        kind = rng.choices(list(self.kinds), self.weights)[0]
        generate, check = self.kinds[kind]
        data = generate(rng)
        started = time.process_time()
        is_valid = True
        try:
            check(rng, data)
        except ZkConsumerError as error:
            is_valid = False
            assert len(str(error)) < MAX_MESSAGE, f"message of {len(str(error))} characters"
            assert str(error).isprintable(), "control characters in the message"
        used = time.process_time() - started
        assert used < self.max_seconds, f"took {used:.1f} s"
        return kind, is_valid

    def main(self, argv: list[str] | None = None) -> int:
        """Parse the command line, run executions and return the exit status."""
        parser = argparse.ArgumentParser(prog=f"python -m tests.fuzz.{self.name}", description=f"Fuzz {self.name}.")
        parser.add_argument("--seconds", type=float, default=30, help="seconds to run (default: 30)")
        parser.add_argument("--runs", type=int, help="number of executions, instead of --seconds")
        parser.add_argument("--first", type=int, default=0, help="number of the first execution")
        parser.add_argument("--seed", type=int, help="seed of the random numbers (default: random; it is printed)")
        options = parser.parse_args(argv)
        seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
        print(f"fuzz: {self.name}, seed {seed}", flush=True)
        used_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        counts: dict[tuple[str, bool], int] = {}
        execution, deadline = options.first, time.monotonic() + options.seconds
        while execution < options.first + options.runs if options.runs else time.monotonic() < deadline:
            try:
                result = self.execute(seed, execution)
                megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used_before) // 1024
                assert megabytes < self.max_megabytes, f"memory has grown by {megabytes} MB"
            except Exception:
                traceback.print_exc()
                print(
                    f"fuzz: execution {execution} of seed {seed} failed; to repeat it:\n"
                    f"    python -m tests.fuzz.{self.name} --seed {seed} --first {execution} --runs 1",
                    file=sys.stderr,
                )
                return 1
            counts[result] = counts.get(result, 0) + 1
            execution += 1
        details: Any = ", ".join(
            f"{kind} {'valid' if ok else 'refused'} {n}" for (kind, ok), n in sorted(counts.items())
        )
        print(f"fuzz: {execution - options.first} executions: {details}")
        return 0
