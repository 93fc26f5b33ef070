"""Structured logging that stays silent until the application configures something."""

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

    Goes to structlog where the application has configured it, else to the standard library's
    logger ``name``, which prints nothing without a handler. Call it in constructors, not per event.
    """
    if structlog.is_configured():
        return structlog.get_logger(name).bind(**context)
    return structlog.wrap_logger(
        logging.getLogger(name), processors=_PLAIN, wrapper_class=structlog.stdlib.BoundLogger
    ).bind(**context)
