"""What must be equal in the answers of both sides."""

from __future__ import annotations

from typing import Any

Json = Any

#: Classes of Kafka Streams' errors by the class of the error here.
JAVA_CLASSES = {
    # A name is null, a supplier returns the same object, a sink is a parent.
    "TopologyError": (
        "TopologyException",
        "NullPointerException",
        "IllegalArgumentException",
        "UnsupportedOperationException",
    ),
    "StreamsError": ("StreamsException", "UnsupportedOperationException"),  # a global store was changed
    "InvalidArgumentError": ("IllegalArgumentException", "NullPointerException"),  # a key is null
    "ValueError": ("IllegalArgumentException",),
    "RuntimeError": ("IllegalStateException",),
    "NotImplementedError": ("UnsupportedOperationException",),
}


def essence(answer: Json) -> Json:
    """Return what must be equal: messages are not, and ``have_same_kind`` compares the classes of errors."""
    answer = {name: value for name, value in answer.items() if name not in ("text", "close", "wrapped")}
    if "error" in answer:
        answer["error"] = True
    if "stores" in answer:
        answer["stores"] = {name: lines for name, lines in answer["stores"].items() if lines}
    # Kafka Streams fails if sessions of a key are read backward from an empty store with a cache.
    if "reads" in answer:
        answer["reads"] = ["[]" if read == "IllegalArgumentException" else read for read in answer["reads"]]
    return answer


def have_same_kind(answer: Json, expected: Json) -> bool:
    """Return whether the classes of two errors, and those of their causes, correspond; True if there is none."""
    classes, others = answer.get("error", ()), expected.get("error", ())
    if answer.get("wrapped"):
        classes = classes[1:]
    if len(classes) != len(others):
        return False
    return all(other in JAVA_CLASSES.get(name, ()) for name, other in zip(classes, others, strict=True))


def is_wrapped(error: BaseException) -> bool:
    """Return whether an error is one of the processor of a global store, or of a partitioner.

    Their errors are causes of a StreamsError; Kafka Streams does not wrap them.
    """
    return str(error).startswith("task global,") or str(error).endswith(": ValueError: part")


def error_classes(error: BaseException) -> list[str]:
    """Return the names of the classes of an error and of its causes."""
    names = []
    cause: BaseException | None = error
    while cause is not None:
        names.append(type(cause).__name__)
        cause = cause.__cause__
    return names
