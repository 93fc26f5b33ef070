"""Reference documentation of properties and options, one row each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """Documentation of one property or option.

    All attributes except ``name`` are in reStructuredText.

    Attributes:
        name: name of the property or option, as the user writes it.
        type: name of the type; units are given in ``meaning``.
        default: default value, ``none`` or ``required``.
        valid: valid values; empty if every string is valid.
        meaning: description in one to three sentences or noun phrases.
        counterpart: corresponding property or option of Kafka or Spark, or ``none``.
    """

    name: str
    type: str
    default: str
    valid: str
    meaning: str
    counterpart: str


def to_text(rows: Iterable[Row], *, width: int = 80) -> str:
    """Render rows as text for ``--help``.

    Args:
        rows: rows to render, in output order.
        width: maximum number of characters per line.
    """
    lines = []
    for row in rows:
        lines.append(f"  {row.name} ({row.type}, {_remove_markup(row.default)})")
        lines += textwrap.wrap(_remove_markup(row.meaning), width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines) + "\n"


def _remove_markup(text: str) -> str:
    return text.replace("``", "")
