"""Package version, selection of compiled or pure Python modules, and diagnosis of missing compiled modules."""

from __future__ import annotations

import os
from pathlib import Path

__version__ = "0.1.0"

#: Whether to use the pure Python modules instead of the compiled ones (``ZKCONSUMER_PURE=1``).
IS_PURE = os.environ.get("ZKCONSUMER_PURE") == "1"


def explain_missing_module(directory: Path = Path(__file__).parents[1]) -> str:
    """Return an error message that explains why a compiled module is missing from the package in ``directory``."""
    if (directory / "setup.py").exists():
        return (
            f"zkconsumer was imported from the source directory {str(directory)!r}, which lacks a compiled module; "
            f"compile it with `pip install -e {directory}`, or run the program from another directory to use an "
            "installed zkconsumer"
        )
    return (
        "a compiled module of zkconsumer is missing; reinstall the package with a C compiler available "
        "(ZKCONSUMER_PURE=1 selects the much slower pure Python modules)"
    )
