"""Groups the clicks of each user into sessions with a session store.

A session ends when its user has not clicked for 30 minutes of event time, and closes 15 minutes later. Until then, late
clicks extend or merge sessions. Clicks of closed sessions are dropped and counted.
``python -m pytest examples/test_click_sessions.py`` runs its tests.
"""

from __future__ import annotations

from zkconsumer.topology import Processor, ProcessorContext, Record, Topology, serdes, stores
from zkconsumer.topology.stores import Windowed
from zkconsumer.topology.windows import SessionWindows

MINUTE = 60_000
WINDOWS = SessionWindows(gap_ms=30 * MINUTE, grace_ms=15 * MINUTE)


class Sessions(Processor):
    """Counts the clicks of each session, and forwards closed sessions."""

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        self._context = context
        self._sessions = context.get_state_store("sessions")
        self._next_check_ms = 0

    def process(self, record: Record) -> None:
        """Add a click, unless its session is closed, and merge sessions within the gap.

        Once per event-time minute, closed sessions are forwarded first. A punctuator would run after the click. If the
        click is much later than the previous one, the store has removed the closed sessions by then.
        """
        now_ms = self._context.current_stream_time_ms
        if now_ms >= self._next_check_ms:
            self._forward_ended(now_ms)
            self._next_check_ms = now_ms - now_ms % MINUTE + MINUTE
        first, last = record.timestamp - WINDOWS.gap_ms, record.timestamp + WINDOWS.gap_ms
        touched = list(self._sessions.find_sessions(record.key, first, last))
        start = min([record.timestamp, *(session.start for session, _ in touched)])
        end = max([record.timestamp, *(session.end for session, _ in touched)])
        if WINDOWS.is_closed(end, now_ms):
            self._context.count("late_clicks")
            return
        for session, _ in touched:
            self._sessions.remove(session)
        self._sessions.put(Windowed(record.key, start, end), 1 + sum(clicks for _, clicks in touched))

    def _forward_ended(self, now_ms: int) -> None:
        for session, clicks in self._sessions.fetch_keys():
            if WINDOWS.is_closed(session.end, now_ms):
                minutes = (session.end - session.start) // MINUTE
                self._context.forward(Record(session.key, {"clicks": clicks, "minutes": minutes}, session.end))
                self._sessions.remove(session)


def topology() -> Topology:
    """Return the topology, which reads the topic ``clicks`` and writes the topic ``sessions``."""
    store = stores.session("sessions", serdes.STRING, serdes.LONG, retention_ms=2 * WINDOWS.retention_ms)
    return (
        Topology()
        .add_source("clicks", "clicks", key_deserializer=serdes.STRING)
        .add_processor("sessions", Sessions, "clicks", stores=[store])
        .add_sink(
            "out",
            "sessions",
            "sessions",
            key_serializer=serdes.STRING,
            value_serializer=serdes.JSON,
        )
    )
