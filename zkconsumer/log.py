"""Structured logging that prints nothing until the application configures logging."""

from __future__ import annotations

import logging
from typing import Any

import structlog

_PLAIN: list[Any] = [
    structlog.stdlib.filter_by_level,
    structlog.processors.format_exc_info,
    structlog.processors.KeyValueRenderer(key_order=["event"]),
]

logging.getLogger("zkconsumer").addHandler(logging.NullHandler())


def get_logger(name: str, **context: object) -> Any:
    """Return a logger with ``context`` bound.

    It uses structlog if the application has configured structlog, and the standard library's logger ``name``
    otherwise. Call it in constructors, not per event.
    """
    if structlog.is_configured():
        return structlog.get_logger(name).bind(**context)
    return structlog.wrap_logger(
        logging.getLogger(name), processors=_PLAIN, wrapper_class=structlog.stdlib.BoundLogger
    ).bind(**context)
