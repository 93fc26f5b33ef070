"""Version of the package, whether its compiled modules are used, and why one of them is missing."""

from __future__ import annotations

import os
from pathlib import Path

__version__ = "0.1.0"

#: Whether the modules in Python are used instead of the compiled ones: ``ZKCONSUMER_PURE=1`` is set.
IS_PURE = os.environ.get("ZKCONSUMER_PURE") == "1"


def explain_missing_module(directory: Path = Path(__file__).parents[1]) -> str:
    """Return why a compiled module is missing in the package in ``directory``."""
    if (directory / "setup.py").exists():
        return (
            f"zkconsumer was imported from the source directory {str(directory)!r}, which lacks a compiled module "
            "and hides an installed zkconsumer; run the program from another directory, or compile the modules with "
            f"`pip install -e {directory}`"
        )
    return (
        "a compiled module of zkconsumer is missing; reinstall the package with a C compiler available, or set "
        "ZKCONSUMER_PURE=1 to use the much slower modules in Python"
    )
