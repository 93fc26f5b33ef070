"""The decoder in use: the compiled ``_decode``, or ``decode_py`` if ``ZKCONSUMER_PURE=1`` is set."""

from __future__ import annotations

from typing import Any

from zkconsumer.version import IS_PURE, explain_missing_module

if IS_PURE:
    from zkconsumer.fetcher import decode_py

    native: Any = decode_py
else:
    try:
        from zkconsumer.fetcher import _decode
    except ImportError as error:
        raise ImportError(explain_missing_module()) from error
    native = _decode
