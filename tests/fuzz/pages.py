"""Fuzz the compiled maps of stores: ``python -m tests.fuzz.pages --seconds 30``."""

from __future__ import annotations

import sys

from .command import main
from .sanitized import PACKAGE, Target

#: Name of a check: its text in ``_pages.c``, and the replacement. ``BROKEN`` is true while the check is disabled.
CHECKS = {
    "entry-count": (
        "count > (data.size - HEAD_BYTES) / LENGTHS_BYTES",
        "(!BROKEN && count > (data.size - HEAD_BYTES) / LENGTHS_BYTES)",
    ),
    "lengths": ("!sizes_match(data, count)", "(!BROKEN && !sizes_match(data, count))"),
    "key-order": ("is_valid = order > 0 ||", "is_valid = BROKEN || order > 0 ||"),
    "key-range": ("stop && count && compare(", "!BROKEN && stop && count && compare("),
    "arena-room": ("page->arena_room - page->used < bytes", "!BROKEN && page->arena_room - page->used < bytes"),
    "index-room": (
        "page->index_room - page->count < (size_t)is_new",
        "!BROKEN && page->index_room - page->count < (size_t)is_new",
    ),
    "deleted-room": (
        "self->deleted_room - self->n_deleted >= pages",
        "BROKEN || self->deleted_room - self->n_deleted >= pages",
    ),
    "value-length": ("value_size(value) <= old.size", "BROKEN || value_size(value) <= old.size"),
    "removed-position": (
        "if (self->hint_page == page) self->hint_page = NULL;",
        "if (!BROKEN && self->hint_page == page) self->hint_page = NULL;",
    ),
    "joined-page": ("if (self->next_to_join == page) ", "if (!BROKEN && self->next_to_join == page) "),
    "busy": ("return self->busy ?", "return !BROKEN && self->busy ?"),
    "integer-length": ("data.size == 4 ?", "BROKEN || data.size == 4 ?"),
    "timestamp-length": ("if (data.size < 8) return NULL;", "if (!BROKEN && data.size < 8) return NULL;"),
}

#: Errors that the sanitizer does not report, by check.
OTHER_REPORTS = {
    "key-order": " instead of ",
    "key-range": " instead of ",
    "integer-length": " instead of ",
    "arena-room": "null pointer",
    "deleted-room": "null pointer",
    "removed-position": "null pointer",
    "busy": "a page store could use the map that had called it",
    "timestamp-length": "SystemError: Negative size",
}

PAGES = Target(
    command="tests.fuzz.pages",
    source=PACKAGE / "topology" / "stores" / "_pages.c",
    child="page_child",
    prepare=lambda _seed, _folder: [],
    checks=CHECKS,
    other_reports=OTHER_REPORTS,
    self_test_arguments=[],
)

if __name__ == "__main__":
    sys.exit(main(PAGES, sys.argv[1:]))
