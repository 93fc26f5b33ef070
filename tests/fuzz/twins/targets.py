"""The compiled modules that are compared with their twins, and the checks that the self-test removes from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Name of a check: its text in the C file, and the replacement. ``BROKEN`` is true while the check is disabled.
LOOP_CHECKS = {
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
LOOP_REPORTS = {
    "row-room": "null pointer",
    "deleted-attribute": "null pointer",
}

CACHE_CHECKS = {
    "added-twice": (
        "if (!failed && entries_node(self, key) == NULL)",
        "if (!failed && (BROKEN || entries_node(self, key) == NULL))",
    ),
    "cleared-lists": (
        "self->oldest = self->newest = self->first_dirty = self->last_dirty = NULL;\n    Py_DECREF(old);",
        "if (!BROKEN) self->oldest = self->newest = self->first_dirty = self->last_dirty = NULL;\n    Py_DECREF(old);",
    ),
    "removed-change": (
        "if (node->is_dirty) unlink_dirty(self, node);\n    unlink_use(self, node);",
        "if (!BROKEN && node->is_dirty) unlink_dirty(self, node);\n    unlink_use(self, node);",
    ),
    "value-reference": (
        "Py_XINCREF(node->data);\n        return node->data;",
        "if (!BROKEN) Py_XINCREF(node->data);\n        return node->data;",
    ),
    "deleted-change": (
        "node->data != NULL || node->is_dirty) return PyLong_FromLong(0);",
        "node->data != NULL || (!BROKEN && node->is_dirty)) return PyLong_FromLong(0);",
    ),
    "changed-topic": (
        "if (source == self->last_source) return self->topic_chars;",
        "if (BROKEN ? self->last_source != NULL : source == self->last_source) return self->topic_chars;",
    ),
    "replaced-size": ("size_bytes += size - node->size;", "size_bytes += BROKEN ? size : size - node->size;"),
    "size-limit": (
        "if (budget->size_bytes <= budget->max_bytes) return 0;",
        "if (BROKEN || budget->size_bytes <= budget->max_bytes) return 0;",
    ),
    "forwarded-change": ("Py_INCREF(node); /* a listener", "if (!BROKEN) Py_INCREF(node); /* a listener"),
    "copied-change": (
        "PyObject *change = change_of(node);",
        "PyObject *change = BROKEN ? (Py_INCREF(node), (PyObject *)node) : change_of(node);",
    ),
}

MESSAGE_CHECKS = {
    "row-count": ("(size_t)rows > room", "(!BROKEN && (size_t)rows > room)"),
    "offsets-room": ("(size_t)offsets->len / 4 - 1", "(size_t)offsets->len / 4 - !BROKEN"),
    "validity-room": ("(size_t)validity->len * 8", "((size_t)validity->len + BROKEN) * 8"),
    "data-end": ("o[row + 1] > data->len", "(!BROKEN && o[row + 1] > data->len)"),
    "data-order": ("o[row + 1] < o[row]", "(!BROKEN && o[row + 1] < o[row])"),
    "header-end": (
        "(size_t)list[row + 1] > rows->headers_room",
        "(!BROKEN && (size_t)list[row + 1] > rows->headers_room)",
    ),
    "kept-message": (
        "if (Py_REFCNT((PyObject *)message) > 1) {",
        "if (!BROKEN && Py_REFCNT((PyObject *)message) > 1) {",
    ),
    "copied-fields": (
        "if (Py_REFCNT((PyObject *)message) > 1 && copy_fields",
        "if (!BROKEN && Py_REFCNT((PyObject *)message) > 1 && copy_fields",
    ),
    "released-rows": (
        "/* Releases a message that no longer belongs to a block. */\nstatic void release_message(Message *message) {\n"
        "    message->rows = NULL;",
        "static void release_message(Message *message) {\n    if (!BROKEN) message->rows = NULL;",
    ),
    "rows-reference": ("Py_INCREF((PyObject *)rows);", "if (!BROKEN) Py_INCREF((PyObject *)rows);"),
    "data-reference": (
        "*data = Py_NewRef(self->fields[field]);",
        "*data = BROKEN ? self->fields[field] : Py_NewRef(self->fields[field]);",
    ),
    "buffer-release": ("while (self->views) PyBuffer", "while (!BROKEN && self->views) PyBuffer"),
}

MESSAGE_REPORTS = {
    "data-order": "a call raised SystemError",
    "copied-fields": "MemoryError",
    "buffer-release": "BufferError: memoryview has 1 exported buffer",
}

PAGE_CHECKS = {
    "entry-count": (
        "count > (data.size - HEAD_BYTES) / LENGTHS_BYTES",
        "(!BROKEN && count > (data.size - HEAD_BYTES) / LENGTHS_BYTES)",
    ),
    "lengths": ("!sizes_match(data, count)", "(!BROKEN && !sizes_match(data, count))"),
    "key-order": ("is_valid = order > 0 ||", "is_valid = BROKEN || order > 0 ||"),
    "key-range": ("stop != NULL && count && compare(", "!BROKEN && stop != NULL && count && compare("),
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
    "key-room": ("key->size + more > SHORT_KEY", "!BROKEN && key->size + more > SHORT_KEY"),
    "session-size": ("name.size != key_bytes ||", "(!BROKEN && name.size != key_bytes) ||"),
}

PAGE_REPORTS = {
    "arena-room": "null pointer",
    "deleted-room": "null pointer",
    "removed-position": "null pointer",
    "busy": "a page store could use the map that had called it",
    "timestamp-length": "SystemError: Negative size",
}


@dataclass(frozen=True, slots=True)
class Twin:
    """A compiled module and its twin.

    Attributes:
        name: argument of the command line.
        extension: name of the compiled module, without that of the package ``zkconsumer``.
        modules: names of the modules in Python with the same classes, in the package of the extension.
        calls: module of this package, and its class that makes the calls.
        counts: numbers of calls of an execution, of which one is drawn.
        checks: see ``sanitized.Target``.
        other_reports: see ``sanitized.Target``.
    """

    name: str
    extension: str
    modules: tuple[str, ...]
    calls: tuple[str, str]
    counts: tuple[int, ...]
    checks: Mapping[str, tuple[str, str]]
    other_reports: Mapping[str, str]


_ALL = (
    Twin(
        *("messages", "_message", ("message_py",), ("message_calls", "MessageCalls"), (10,)),
        *(MESSAGE_CHECKS, MESSAGE_REPORTS),
    ),
    Twin("loop", "topology.loop._loop", ("loop_py",), ("loop_calls", "LoopCalls"), (20,), LOOP_CHECKS, LOOP_REPORTS),
    Twin(
        "cache", "topology.loop._loop", ("cache_py", "loop_py"), ("cache_calls", "CacheCalls"), (1,), CACHE_CHECKS, {}
    ),
    Twin(
        "pages",
        "topology.stores._pages",
        ("pages", "serde_map", "time_map"),
        ("page_calls", "PageCalls"),
        (30, 100, 300),
        PAGE_CHECKS,
        PAGE_REPORTS,
    ),
)
TWINS = {twin.name: twin for twin in _ALL}
