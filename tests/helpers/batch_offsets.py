"""Offsets of Spark batches."""

from __future__ import annotations

from typing import Any

from zkconsumer.spark.offset import BatchOffset, Ranges


def offset_json(ranges: Ranges, *, generation: int = 1, **attributes: Any) -> dict[str, Any]:
    """Return the JSON object of a batch's offset; see ``BatchOffset`` for further attributes."""
    return BatchOffset(ranges=ranges, generation=generation, **attributes).to_json()
