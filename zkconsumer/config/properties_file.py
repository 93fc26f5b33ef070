"""Java properties files."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

import javaproperties

_BLANKS = " \t\f"


class FileValue(str):
    """The value of a property in a file, with its place for error messages.

    Attributes:
        path: path of the file, as the user wrote it.
        line: number of the line on which the property starts.
    """

    path: str
    line: int

    @classmethod
    def of(cls, value: str, path: str, line: int) -> FileValue:
        """Return a value with its place."""
        placed = cls(value)
        placed.path, placed.line = path, line
        return placed

    @property
    def place(self) -> str:
        """Path and line, as compilers print them."""
        return f"{self.path}:{self.line}"


def parse_properties(content: bytes, path: str = "") -> dict[str, FileValue]:
    """Parse a Java properties file; the last of several lines with one name applies. See ``parse_entries``."""
    return dict(parse_entries(content, path))


def parse_entries(content: bytes, path: str = "") -> list[tuple[str, FileValue]]:
    """Return the names and values in a Java properties file, in order. The time is proportional to its size.

    As in Java, the encoding is ISO-8859-1, and blanks at the end of a value belong to the value. Unlike in Java, the
    encoding is UTF-8 if the content starts with a byte order mark, which is not part of the first name.

    Args:
        path: path of the file, for error messages.

    Raises:
        ValueError: an escape sequence is invalid.

    Source: java.util.Properties.load.
    """
    if content.startswith(codecs.BOM_UTF8):
        text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    else:
        text = content.decode("iso-8859-1")
    return [
        (key, FileValue.of(value, path, number))
        for number, line in _logical_lines(text)
        for key, value in javaproperties.loads(line).items()
    ]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of the first line, and the text, of each property, with continued lines joined.

    javaproperties reads continued lines, too, but needs a time that is quadratic in the length of the logical line.

    Source: java.util.Properties.LineReader.
    """
    first = 0
    parts: list[str] = []
    for number, line in enumerate(re.split("\r\n|\r|\n", text), 1):
        part = line.lstrip(_BLANKS)
        if not parts:
            if part[:1] in ("", "#", "!"):
                continue
            first = number
        is_continued = (len(part) - len(part.rstrip("\\"))) % 2 == 1
        parts.append(part[:-1] if is_continued else part)
        if not is_continued:
            yield first, "".join(parts)
            parts = []
    if parts:
        yield first, "".join(parts)


__all__ = ["FileValue", "parse_entries", "parse_properties"]
