"""The row schema of a query. The planning process and the tasks need it, but only tasks decode records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from zkconsumer.message import ARROW_SCHEMA_WITH_HEADERS

#: The column that ``corrupt.record.policy=quarantine`` adds.
CORRUPT_FIELD = pa.field(
    "corrupt",
    pa.struct(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("error", pa.string()),
        ]
    ),
)


@dataclass(frozen=True)
class RowSchema:
    """The row schema of a query, and how its rows are decoded; pickled with each task.

    Attributes:
        schema: schema of the DataFrame. The column ``corrupt``, if any, is the last one.
        decoder: decoder class name; None without a decoder.
        options: decoder options.
        policy: ``corrupt.record.policy``: ``raise``, ``skip`` or ``quarantine``.
    """

    schema: pa.Schema
    decoder: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    policy: str = "raise"

    @classmethod
    def from_columns(cls, columns: tuple[str, ...]) -> RowSchema:
        """Return the row schema for columns of Spark's Kafka source."""
        return cls(pa.schema([ARROW_SCHEMA_WITH_HEADERS.field(name) for name in columns]))
