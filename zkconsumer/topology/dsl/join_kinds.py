"""Join types: inner, left and outer."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

#: Function that returns the join result, given the key and both values.
Joiner = Callable[[Any, Any, Any], Any]


class JoinKind(enum.Enum):
    """Join type, which determines the sides whose unmatched records are kept."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"
