"""Fuzz C modules: ``python -m tests.fuzz --seconds 30``, or ``python -m tests.fuzz twin loop --seconds 30``.

Without ``twin``, the decoder is called with mutated batches. ``twin`` makes equal calls of a compiled module and of its
twin in Python; the valid names are in ``twins/targets.py``.
"""

from __future__ import annotations

import sys

from .command import main
from .decoder import DECODER
from .sanitized import PACKAGE, Target
from .twins.targets import TWINS, Twin


def create_target(twin: Twin) -> Target:
    """Return the target of a compiled module with a twin."""
    return Target(
        command=f"tests.fuzz twin {twin.name}",
        source=PACKAGE.joinpath(*twin.extension.split(".")).with_suffix(".c"),
        child="twins.child",
        prepare=lambda _seed, _folder: ["--twin", twin.name],
        checks=twin.checks,
        other_reports=twin.other_reports,
        self_test_arguments=[],
    )


def run(argv: list[str]) -> int:
    """Run the fuzzer that the first arguments name; return the exit status."""
    if argv[:1] != ["twin"]:
        return main(DECODER, argv)
    name = argv[1] if len(argv) > 1 else ""
    if name not in TWINS:
        print(f"fuzz: twin must be one of {', '.join(TWINS)}, got {name!r}", file=sys.stderr)
        return 2
    return main(create_target(TWINS[name]), argv[2:])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
