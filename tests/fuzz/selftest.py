"""The self-test of a fuzzer: removes the checks of a C module one at a time, and expects each to be found."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from . import sanitized

_SECONDS = 20
_REPORT = re.compile(r"ERROR: (AddressSanitizer: \S+)|runtime error: (.*)")

#: In the error for a result that is not equal to that of the twin.
_DIFFERENCE = " instead of "

_PRELUDE = """
#include <stdlib.h>
static int is_broken(int check) {
    static int broken = -2;
    if (broken == -2) {
        const char *text = getenv("ZKCONSUMER_FUZZ_BROKEN");
        broken = text ? atoi(text) : -1;
    }
    return check == broken;
}
"""


def breakable(target: sanitized.Target, text: str) -> str:
    """Return the source with checks that an environment variable disables.

    Raises:
        CannotRunError: the source does not contain a check exactly once.
    """
    for number, (name, (old, new)) in enumerate(target.checks.items()):
        if text.count(old) != 1:
            raise sanitized.CannotRunError(
                f"the check {name!r} of the self-test must occur once in {target.source.name} as {old!r}, "
                f"got {text.count(old)} occurrences; update the checks of {target.command}"
            )
        text = text.replace(old, new.replace("BROKEN", f"is_broken({number})"))
    include = "#include <string.h>\n"
    return text.replace(include, include + _PRELUDE, 1)


def run(folder: Path, target: sanitized.Target, text: str, seed: int, arguments: list[str], wanted: list[str]) -> int:
    """Run the fuzzer against the unchanged module, and then without each check."""
    unknown = sorted(set(wanted) - set(target.checks))
    if unknown:
        raise sanitized.CannotRunError(f"unknown check {unknown[0]!r}; valid checks: {', '.join(target.checks)}")
    module = sanitized.build(folder, target, breakable(target, text))
    print(f"fuzz: self-test with seed {seed}", flush=True)
    whole = sanitized.run_child(folder, target, module, [*arguments, "--runs", "300"], capture=True)
    if whole is not None:
        print(f"fuzz: the unchanged module fails\n{whole.stderr}", file=sys.stderr)
        return 1
    missed = [name for name in target.checks if not wanted or name in wanted]
    for name in tuple(missed):
        started = time.monotonic()
        found = sanitized.run_child(
            folder,
            target,
            module,
            [*arguments, "--seconds", str(_SECONDS), *target.self_test_arguments],
            capture=True,
            environment={"ZKCONSUMER_FUZZ_BROKEN": str([*target.checks].index(name))},
        )
        took = f"{time.monotonic() - started:.1f} s"
        if found is None:
            print(f"fuzz: without check {name}: NOT FOUND in {took}", flush=True)
            continue
        report = _REPORT.search(found.stderr)
        what = next(filter(None, report.groups())) if report else found.stderr.strip().splitlines()[-1]
        expected = ("AddressSanitizer: ", _DIFFERENCE, target.other_reports.get(name, _DIFFERENCE))
        if any(text in what for text in expected):
            missed.remove(name)
            print(f"fuzz: without check {name}: found in {took}: {what}", flush=True)
        else:
            print(f"fuzz: without check {name}: UNEXPECTED ERROR in {took}: {what}", flush=True)
    if missed:
        print(f"fuzz: the fuzzer does not detect the removal of these checks: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0
