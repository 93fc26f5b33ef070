"""The data that earlier versions wrote; see ``tests/spark/data/README.rst``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "spark" / "data"

#: All versions whose data is stored. Data is never removed from this list.
VERSIONS: tuple[str, ...] = ("0.1.0",)

#: Checkpoints of queries that the same versions wrote with other versions of Spark.
QUERY_VERSIONS = (*VERSIONS, "0.1.0-spark-4.0.5", "0.1.0-spark-4.1.4", "0.1.0-spark-4.2.1")

#: Checkpoints of a ``StreamsApp``, including those with other versions of Spark.
APPLICATION_VERSIONS = (*VERSIONS, "0.1.0-spark-4.2.1")


def find_data(version: str) -> Path:
    """Return the directory with the data of a version."""
    return DATA / f"checkpoints-{version}"


def import_topology(name: str) -> Any:
    """Import ``state_stores`` or ``dsl_stores`` with the module name that is stored in snapshots."""
    if str(DATA) not in sys.path:
        sys.path.append(str(DATA))
    return importlib.import_module(name)
