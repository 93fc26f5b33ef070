"""reStructuredText tables."""

from __future__ import annotations

from collections.abc import Sequence


def grid(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a reStructuredText table without the columns in which all cells are empty."""
    columns = [(title, *cells) for title, *cells in zip(header, *rows, strict=True) if any(cells) or not rows]
    widths = [max(map(len, column)) for column in columns]
    line = "  ".join("=" * width for width in widths)
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    ]
    return "\n".join([line, text[0], line, *text[1:], line, ""])
