"""Results of ``bench.streams`` in ``bench/results/streams.json`` and ``streams.rst``."""

from __future__ import annotations

import json
from typing import Any

from bench.report import FOLDER, to_json

_PATH = FOLDER / "streams.json"


def load() -> dict[str, Any]:
    """Return the stored results."""
    return dict(json.loads(_PATH.read_text())) if _PATH.exists() else {}


def save(results: dict[str, Any], table: str) -> None:
    """Write the results as JSON, and their tables."""
    _PATH.write_text(to_json(results) + "\n")
    _PATH.with_suffix(".rst").write_text(table)
