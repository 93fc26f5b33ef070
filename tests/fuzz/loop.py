"""Fuzz the compiled loop of tasks: ``python -m tests.fuzz.loop --seconds 30``."""

from __future__ import annotations

import sys

from .command import main
from .sanitized import PACKAGE, Target

#: Name of a check: its text in ``_loop.c``, and the replacement. ``BROKEN`` is true while the check is disabled.
CHECKS = {
    "row-end": ("end > views[2].len", "(!BROKEN && end > views[2].len)"),
    "bitmap-size": ("(first + count + 7) / 8 > views[0].len", "!BROKEN && (first + count + 7) / 8 > views[0].len"),
    "ends-size": (
        "(first + count + 1) > views[1].len / 4",
        "(!BROKEN && (first + count + 1) > views[1].len / 4)",
    ),
    "timestamp-count": ("stop > times.rows", "(!BROKEN && stop > times.rows)"),
    "row-room": (
        "if (count <= buffer->capacity - buffer->size) return 0;",
        "if (BROKEN || count <= buffer->capacity - buffer->size) return 0;",
    ),
    "deleted-attribute": ("if (missing == NULL) return 1;", "if (BROKEN || missing == NULL) return 1;"),
    "node-reference": (
        "Py_INCREF(node);\n        int failed = call_node(module, node, record);\n        Py_DECREF(node);",
        "if (!BROKEN) Py_INCREF(node);\n        int failed = call_node(module, node, record);\n"
        "        if (!BROKEN) Py_DECREF(node);",
    ),
    "negative-timestamp": ("if (timestamp < 0) goto done;", "if (!BROKEN && timestamp < 0) goto done;"),
}

#: Errors that the sanitizer does not report, by check.
OTHER_REPORTS = {
    "timestamp-count": " instead of ",
    "row-room": "null pointer",
    "deleted-attribute": "null pointer",
    "negative-timestamp": " instead of ",
}

LOOP = Target(
    command="tests.fuzz.loop",
    source=PACKAGE / "topology" / "_loop.c",
    child="loop_child",
    prepare=lambda _seed, _folder: [],
    checks=CHECKS,
    other_reports=OTHER_REPORTS,
    self_test_arguments=[],
)

if __name__ == "__main__":
    sys.exit(main(LOOP, sys.argv[1:]))
