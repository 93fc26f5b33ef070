"""Java properties files."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

import javaproperties

_BLANKS = " \t\f"


def parse_properties(content: bytes) -> dict[str, str]:
    """Parse the content of a Java properties file. The time is proportional to its size.

    As in Java, the encoding is ISO-8859-1, and blanks at the end of a value belong to the value. Unlike in Java, the
    encoding is UTF-8 if the content starts with a byte order mark, which is not part of the first name.

    Raises:
        ValueError: an escape sequence is invalid.

    Source: java.util.Properties.load.
    """
    if content.startswith(codecs.BOM_UTF8):
        text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    else:
        text = content.decode("iso-8859-1")
    return dict(javaproperties.loads("".join(_logical_lines(text))))


def _logical_lines(text: str) -> Iterator[str]:
    """Yield parts of the text without comments, blank lines and continued lines.

    javaproperties reads continued lines, too, but needs a time that is quadratic in the length of the logical line.

    Source: java.util.Properties.LineReader.
    """
    is_continued = False
    for line in re.split("\r\n|\r|\n", text):
        part = line.lstrip(_BLANKS)
        if not is_continued and part[:1] in ("", "#", "!"):
            continue
        is_continued = (len(part) - len(part.rstrip("\\"))) % 2 == 1
        yield part[:-1] if is_continued else part + "\n"


__all__ = ["parse_properties"]
