"""Report the lines of reStructuredText files that are longer than 100 characters: ``make lint``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

MAX_LENGTH = 100

#: Lines that cannot be wrapped: one literal, such as the name of a test.
_UNBREAKABLE = re.compile(r"\s*(?:\* - |- )?``[^`]+``,?")

#: Directories whose files are generated, or belong to others.
EXCLUDED = ("docs/_build", "docs/_tables", "bench/results", ".venv", "build")


def main() -> int:
    """Print the long lines, and return the exit code."""
    found = 0
    for path in sorted(ROOT.rglob("*.rst")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(EXCLUDED):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > MAX_LENGTH and not _UNBREAKABLE.fullmatch(line):
                print(f"{name}:{number}: {len(line)} characters, the maximum is {MAX_LENGTH}")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
