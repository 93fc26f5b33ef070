"""A replacement for a Spark session, for code that does not use the session."""

from __future__ import annotations


class NoSession:
    """Has only the attribute that identifies a Spark session."""

    readStream = object()
