"""The decoder in use: the compiled ``_decode``, or ``decode_py`` if ``ZKCONSUMER_PURE=1`` is set."""

from __future__ import annotations

import os
from typing import Any

if os.environ.get("ZKCONSUMER_PURE") == "1":
    from zkconsumer.fetcher import decode_py

    native: Any = decode_py
else:
    try:
        from zkconsumer.fetcher import _decode
    except ImportError as error:  # pragma: no cover
        raise ImportError(
            "the compiled decoder of zkconsumer is missing; reinstall the package with a C compiler available, "
            "or set ZKCONSUMER_PURE=1 to use the much slower decoder in Python"
        ) from error
    native = _decode
