"""Which records or keys without a match a join keeps."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

#: Returns the result from the key and both values.
Joiner = Callable[[Any, Any, Any], Any]


class JoinKind(enum.Enum):
    """Which sides are kept if they have no match."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"
