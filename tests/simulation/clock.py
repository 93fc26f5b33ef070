"""The real clock, bound before ``threads.install`` replaces it."""

from time import monotonic as real_time

__all__ = ["real_time"]
