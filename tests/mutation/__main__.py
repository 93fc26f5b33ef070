"""Mutate modules and check that their unit tests fail: ``python -m tests.mutation --seed 1 --count 200``.

A random sample of mutants is drawn from the modules of ``targets.py``. Each mutant is applied to a copy of the project,
and the unit tests of its module are run there. Mutants that no test can notice are listed with a reason in
``equivalent.txt``. The exit status is 0 if all others were killed, 1 if some survived, and 2 if the tests fail without
a mutant.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from .mutants import Mutant, find_mutants
from .runner import BrokenTestsError, Outcome, Project, run_mutants
from .targets import SHARES, TESTS

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.txt")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="seed of the sample (default: random; it is printed)")
    parser.add_argument("--count", type=int, default=200, help="number of mutants (default: 200)")
    parser.add_argument("--seconds", type=float, default=3600, help="maximum seconds to run (default: 3600)")
    parser.add_argument("--only", default="", metavar="PREFIX", help="mutate only modules whose paths begin with it")
    parser.add_argument("--workers", type=int, default=2, help="number of processes (default: 2)")
    parser.add_argument("--name", help="run only the mutants whose names contain this text")
    options = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    deadline = time.monotonic() + options.seconds
    modules = [module for module in TESTS if module.startswith(options.only)]
    found = {module: find_mutants(module, (ROOT / "zkconsumer" / module).read_bytes()) for module in modules}
    reasons = read_reasons(EQUIVALENT.read_text())
    mutants = [mutant for of_module in found.values() for mutant in of_module if mutant.name not in reasons]
    if options.name:
        sample = [mutant for mutant in mutants if options.name in mutant.name]
    else:
        sample = draw(mutants, options.count, seed)
    print(f"mutation: seed {seed}, {len(sample)} of {len(mutants)} mutants", flush=True)
    project = Project(ROOT, "zkconsumer", {m: [f"tests/unit/test_{test}.py" for test in TESTS[m]] for m in modules})
    try:
        with tempfile.TemporaryDirectory(prefix="zkconsumer-mutation-") as name:
            results = run_mutants(
                project, sample, directory=Path(name), workers=options.workers, deadline=deadline, on_result=report
            )
    except BrokenTestsError as error:
        print(f"mutation: {error}", file=sys.stderr)
        return 2
    print(table(results))
    for unknown in sorted(reasons.keys() - {mutant.name for of_module in found.values() for mutant in of_module}):
        if unknown.startswith(options.only):
            print(f"no such mutant in {EQUIVALENT.name}: {unknown}")
    return 1 if Outcome.SURVIVED in results.values() else 0


def draw(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return a random sample, in which each package has its share if it has enough mutants."""
    numbers = random.Random(seed)
    by_package = {prefix: [mutant for mutant in mutants if mutant.module.startswith(prefix)] for prefix in SHARES}
    total = sum(SHARES[prefix] for prefix, of_package in by_package.items() if of_package)
    sample: list[Mutant] = []
    for prefix, of_package in by_package.items():
        if of_package:
            size = round(count * SHARES[prefix] / total)
            sample += numbers.sample(of_package, min(size, len(of_package)))
    numbers.shuffle(sample)
    return sample


def read_reasons(text: str) -> dict[str, str]:
    """Return the reasons by the name of a mutant: a line with the name, then indented lines with the reason."""
    reasons: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line[0] != " ":
            name, reasons[line] = line, ""
        else:
            reasons[name] = f"{reasons[name]} {line.strip()}".strip()
    return reasons


def report(mutant: Mutant, outcome: Outcome) -> None:
    """Print a mutant that survived, at once."""
    if outcome is Outcome.SURVIVED:
        print(f"survived: line {mutant.line}: {mutant.name}", flush=True)


def table(results: Mapping[Mutant, Outcome]) -> str:
    """Return the number of mutants by module and outcome."""
    rows = [["module", "mutants", *(outcome.value for outcome in Outcome)]]
    for module in [*sorted({mutant.module for mutant in results}), ""]:
        counts = Counter(outcome for mutant, outcome in results.items() if mutant.module.startswith(module))
        rows.append([module or "total", str(counts.total()), *(str(counts[outcome]) for outcome in Outcome)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
