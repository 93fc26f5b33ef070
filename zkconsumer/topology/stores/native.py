"""Imports the compiled map classes from ``_pages``, or the pure-Python versions if ``ZKCONSUMER_PURE=1`` is set.

See docs/decisions/28-compiled-maps.rst.
"""

from __future__ import annotations

from zkconsumer.version import IS_PURE, explain_missing_module

if IS_PURE:
    from zkconsumer.topology.stores.pages import PagedMap
    from zkconsumer.topology.stores.serde_map import SerdeMap
    from zkconsumer.topology.stores.time_map import TimeMap
else:
    try:
        from zkconsumer.topology.stores._pages import PagedMap, SerdeMap, TimeMap
    except ImportError as error:
        raise ImportError(explain_missing_module()) from error

__all__ = ["PagedMap", "SerdeMap", "TimeMap"]
