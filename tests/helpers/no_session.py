"""A replacement for a Spark session, for code that does not use the session."""

from __future__ import annotations


class NoSession:
    """Has only the attributes that identify a classic Spark session."""

    readStream = _jsparkSession = object()
