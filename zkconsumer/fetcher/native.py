"""The decoder in use: the compiled ``_decode``, or ``decode_py`` if ``ZKCONSUMER_PURE=1`` is set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def _explain_missing_decoder(directory: Path) -> str:
    """Return why the compiled decoder is missing in the package in ``directory``."""
    if (directory / "setup.py").exists():
        return (
            f"zkconsumer was imported from the source directory {str(directory)!r}, which contains no compiled decoder "
            "and hides an installed zkconsumer; run the program from another directory, or compile the decoder with "
            f"`pip install -e {directory}`"
        )
    return (
        "the compiled decoder of zkconsumer is missing; reinstall the package with a C compiler available, or set "
        "ZKCONSUMER_PURE=1 to use the much slower decoder in Python"
    )


if os.environ.get("ZKCONSUMER_PURE") == "1":
    from zkconsumer.fetcher import decode_py

    native: Any = decode_py
else:
    try:
        from zkconsumer.fetcher import _decode
    except ImportError as error:
        raise ImportError(_explain_missing_decoder(Path(__file__).parents[2])) from error
    native = _decode
