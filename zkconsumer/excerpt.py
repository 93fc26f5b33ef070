"""excerpt: quotes untrusted text in messages."""

from __future__ import annotations

#: Maximum number of characters or bytes quoted in a message.
_MAX_LENGTH = 200


def excerpt(content: str | bytes) -> str:
    """Return the beginning of ``content``, quoted and with control characters escaped."""
    if len(content) <= _MAX_LENGTH:
        return repr(content)
    unit = "bytes" if isinstance(content, bytes) else "characters"
    return f"{content[:_MAX_LENGTH]!r}... ({len(content)} {unit})"
