"""Rows of the tables that document properties and options."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """Documentation of one property or option.

    All attributes but ``name`` are reStructuredText.

    Attributes:
        name: as the user writes it.
        type: name of its type; units belong in ``meaning``.
        default: the value that applies if it is absent, ``none`` or ``required``.
        valid: the accepted values, empty if every text is valid.
        meaning: one to three sentences in the imperative, or noun phrases.
        counterpart: the property or option of Kafka or Spark that it corresponds to, or ``none``.
    """

    name: str
    type: str
    default: str
    valid: str
    meaning: str
    counterpart: str


def to_text(rows: Iterable[Row], *, width: int = 80) -> str:
    """Render a table as text for ``--help``.

    Args:
        rows: the rows in the order of the table.
        width: maximum number of characters per line.
    """
    lines = []
    for row in rows:
        lines.append(f"  {row.name} ({row.type}, {_remove_markup(row.default)})")
        lines += textwrap.wrap(_remove_markup(row.meaning), width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines) + "\n"


def _remove_markup(text: str) -> str:
    return text.replace("``", "")
