"""KnownPartitions: partitions that are missing in a Metadata response, although earlier responses contained them.

A broker that has just started may respond before it has received the metadata of the cluster. If one such response were
sufficient, a member would release all partitions of a topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

#: Seconds after which partitions count as deleted if they are missing, and no second broker responds.
GRACE_S = 5.0

#: Sorted partitions by topic. Topics that do not exist are absent.
Partitions = Mapping[str, list[int]]


class KnownPartitions:
    """The partitions of the topics that were looked up. Used by one thread."""

    def __init__(self) -> None:
        self._known: dict[str, list[int]] = {}
        self._missing_since: dict[str, float] = {}
        self._absent: set[str] = set()  # topics that do not exist; no other broker is asked for them again

    def confirm(
        self, topics: Iterable[str] | None, found: Partitions, ask_another: Callable[[], Partitions | None]
    ) -> dict[str, list[int]]:
        """Return the partitions that exist, given those in the response of one broker.

        If a topic is missing, or has fewer partitions than before, the lookup is repeated at another broker. Partitions
        that are missing in both responses do not exist. If no other broker responds, known partitions are kept for a
        grace period.

        Args:
            topics: the topics that were looked up; None for all.
            ask_another: returns the partitions in the response of another broker; None if no other broker responds.
        """
        looked_up = {*self._known, *found} if topics is None else set(topics)
        self._absent -= found.keys()
        missing = {
            t for t in looked_up - self._absent if t not in found or not {*self._known.get(t, ())} <= {*found[t]}
        }
        second = ask_another() if missing else None
        existing = {}
        for topic in looked_up:
            numbers = {*found.get(topic, ())}
            if topic in missing:
                numbers |= {*self._unconfirmed(topic, second)}
            else:
                self._missing_since.pop(topic, None)
            if numbers:
                existing[topic] = self._known[topic] = sorted(numbers)
            else:
                self._known.pop(topic, None)
                self._absent.add(topic)
        return existing

    def _unconfirmed(self, topic: str, second: Partitions | None) -> Iterable[int]:
        """Return the partitions of a topic that exist although the first response may not contain them."""
        if second is not None:
            self._missing_since.pop(topic, None)
            return second.get(topic, ())
        now = time.monotonic()
        since = self._missing_since.setdefault(topic, now)
        return self._known.get(topic, ()) if now - since <= GRACE_S else ()
