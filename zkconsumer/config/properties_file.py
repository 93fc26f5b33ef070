"""Parser for Java properties files."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

_BLANKS = " \t\f"


class FileValue(str):
    """A property value from a file, with its location for error messages.

    Attributes:
        path: path of the file, as the user wrote it.
        line: line number at which the property starts.
        is_encoding_clear: False if the property contains non-ASCII characters in a file without a byte order mark. Most
            editors write such a file in UTF-8.
    """

    path: str
    line: int
    is_encoding_clear: bool

    @classmethod
    def of(cls, value: str, path: str, line: int, *, is_encoding_clear: bool = True) -> FileValue:
        """Return the value with its location."""
        placed = cls(value)
        placed.path, placed.line, placed.is_encoding_clear = path, line, is_encoding_clear
        return placed

    @property
    def place(self) -> str:
        """Location in the form ``path:line``."""
        return f"{self.path}:{self.line}"


def parse_properties(content: bytes, path: str = "") -> dict[str, FileValue]:
    """Parse a Java properties file; if a property is repeated, its last value applies. See ``parse_entries``."""
    return dict(parse_entries(content, path))


def parse_entries(content: bytes, path: str = "") -> list[tuple[str, FileValue]]:
    """Return the names and values in a Java properties file, in file order.

    As in Java, the encoding is ISO-8859-1, and trailing whitespace is part of a value. Unlike in Java, a file that
    starts with a byte order mark is decoded as UTF-8, and the mark is not part of the first name.

    Args:
        path: path of the file, for error messages.

    Raises:
        ValueError: an escape sequence is invalid, the file contains a NUL byte, like binary and UTF-16 files, or a file
            with a byte order mark is not valid UTF-8.

    Source: java.util.Properties.load.
    """
    if b"\0" in content:
        line = _line_number(content, content.index(b"\0"))
        raise ValueError(f"line {line} contains a NUL byte; save the file as ASCII text")
    has_mark = content.startswith(codecs.BOM_UTF8)
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8" if has_mark else "iso-8859-1")
    except UnicodeDecodeError as error:
        line = _line_number(error.object, error.start)
        raise ValueError(f"line {line} is not valid UTF-8, although the file has a UTF-8 byte order mark") from None
    import javaproperties  # which loads an XML parser and an HTTP client; most processes read no such file

    return [
        (key, FileValue.of(value, path, number, is_encoding_clear=has_mark or line.isascii()))
        for number, line in _logical_lines(text)
        for key, value in javaproperties.loads(line).items()
    ]


def _line_number(content: bytes, position: int) -> int:
    return content.count(b"\n", 0, position) + 1


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first line number and the text of each property, with continuation lines joined.

    javaproperties also joins continuation lines, but in quadratic time.

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
