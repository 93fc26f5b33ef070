"""excerpt: texts that somebody else has written, in messages."""

from __future__ import annotations

#: Maximum number of characters of a text, or of bytes, quoted in a message.
_MAX_LENGTH = 200


def excerpt(content: str | bytes) -> str:
    """Return the beginning of a value or of a znode's content, in quotes and without control characters."""
    if len(content) <= _MAX_LENGTH:
        return repr(content)
    unit = "bytes" if isinstance(content, bytes) else "characters"
    return f"{content[:_MAX_LENGTH]!r}... ({len(content)} {unit})"
