"""Reads and changes the strings in the checkpoint of a ``StreamingContext``, without Spark.

The file is a Java object stream that was compressed with zstd. It contains Java strings, such as paths, and pickled
functions of each stream, such as those of ``KafkaUtils``.

Source: Java Object Serialization Specification, section 6.4; Spark 4.3 Checkpoint, TransformFunction.writeObject.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

#: The first block of the data that ``TransformFunction.writeObject`` writes: the length of a pickle, and its beginning.
_FIRST_BLOCK = re.compile(rb"(?:\x77.|\x7a.{4}).{4}(?=\x80[\x04\x05]\x95)", re.DOTALL)
_END_OF_BLOCKS = b"\x78"

#: Maximum length of a string whose length is stored in two bytes. Each character has one byte.
_STRING = re.compile(rb"\x74(.{2})(?=[\x20-\x7e]{4})", re.DOTALL)


class _Pickle(NamedTuple):
    """A pickle, and the positions of its blocks in the file."""

    start: int
    end: int
    content: bytes


def pickles(file: Path) -> list[bytes]:
    """Return the pickles in a checkpoint, in file order."""
    return [found.content for found in _pickles(_read(file))]


def change_strings(file: Path, change: Callable[[str], str]) -> None:
    """Replace each string in a checkpoint by the result of a function."""
    data, position, parts = _read(file), 0, []
    for found in _pickles(data):
        parts.append(_with_java_strings(data[position : found.start], change))
        changed = _with_pickled_strings(found.content, change)
        parts.append(struct.pack(">BII", 0x7A, 4 + len(changed), len(changed)) + changed)
        position = found.end
    parts.append(_with_java_strings(data[position:], change))
    with pa.OSFile(str(file), "wb") as sink, pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(b"".join(parts))


def _read(file: Path) -> bytes:
    with pa.OSFile(str(file)) as source, pa.CompressedInputStream(source, "zstd") as stream:
        return bytes(stream.read())


def _pickles(data: bytes) -> Iterator[_Pickle]:
    position = 0
    while (first := _FIRST_BLOCK.search(data, position)) is not None:
        position, content = first.start(), b""
        while data[position : position + 1] != _END_OF_BLOCKS:  # blocks have at most 1024 bytes
            if data[position] == 0x77:
                length, position = data[position + 1], position + 2
            else:
                assert data[position] == 0x7A
                length, position = struct.unpack_from(">I", data, position + 1)[0], position + 5
            content += data[position : position + length]
            position += length
        assert struct.unpack_from(">I", content)[0] == len(content) - 4
        yield _Pickle(first.start(), position, content[4:])


def _with_java_strings(data: bytes, change: Callable[[str], str]) -> bytes:
    position, parts = 0, []
    while (found := _STRING.search(data, position)) is not None:
        end = found.end() + struct.unpack(">H", found[1])[0]
        text = data[found.end() : end]
        is_text = text.isascii() and text.decode().isprintable()
        changed = change(text.decode()).encode() if is_text else text
        if changed == text:  # the byte before it may be part of other data
            parts.append(data[position : found.end()])
            position = found.end()
        else:
            parts += [data[position : found.start()], struct.pack(">BH", 0x74, len(changed)), changed]
            position = end
    return b"".join([*parts, data[position:]])


def _with_pickled_strings(data: bytes, change: Callable[[str], str]) -> bytes:
    steps = list(pickletools.genops(data))
    ends = [position for _, _, position in steps[1:]] + [len(data)]
    parts = []
    for (opcode, argument, position), end in zip(steps, ends, strict=True):
        if opcode.name in ("SHORT_BINUNICODE", "BINUNICODE"):
            assert isinstance(argument, str)
            text = change(argument).encode()
            parts.append(pickle.BINUNICODE + struct.pack("<I", len(text)) + text)
        elif opcode.name != "FRAME":  # frames have a length; they are optional
            parts.append(data[position:end])
    return b"".join(parts)
