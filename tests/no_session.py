"""An argument in place of a Spark session, for code that does not use the session."""

from __future__ import annotations


class NoSession:
    """Has the attribute by which a Spark session is recognized."""

    readStream = object()
