"""A topology that joins the clicks of a user to sessions, with a session store.

A session ends when its user has not clicked for 30 minutes of event time. Late clicks extend or join earlier sessions.
``test_click_sessions.py`` runs it: ``python -m pytest examples/test_click_sessions.py``.
"""

from __future__ import annotations

from zkconsumer.topology import Processor, ProcessorContext, PunctuationType, Record, Topology, serdes, stores
from zkconsumer.topology.stores import Windowed

GAP_MS = 30 * 60_000


class Sessions(Processor):
    """Counts the clicks of each session, and forwards the sessions that have ended."""

    def init(self, context: ProcessorContext) -> None:
        """Get the store, and look for ended sessions every minute of event time."""
        self._context = context
        self._sessions = context.get_state_store("sessions")
        context.schedule(60_000, PunctuationType.STREAM_TIME, self._forward_ended)

    def process(self, record: Record) -> None:
        """Add a click to the sessions that it touches, which become one."""
        start = end = record.timestamp
        clicks = 1
        for session, count in self._sessions.find_sessions(record.key, start - GAP_MS, end + GAP_MS):
            start, end = min(start, session.start), max(end, session.end)
            clicks += count
            self._sessions.remove(session)
        self._sessions.put(Windowed(record.key, start, end), clicks)

    def _forward_ended(self, now_ms: int) -> None:
        for session, clicks in self._sessions.fetch_keys():
            if session.end + GAP_MS < now_ms:
                minutes = (session.end - session.start) // 60_000
                self._context.forward(Record(session.key, {"clicks": clicks, "minutes": minutes}, session.end))
                self._sessions.remove(session)


def topology() -> Topology:
    """Return the topology: clicks in ``clicks``, sessions in ``sessions``."""
    store = stores.session("sessions", serdes.STRING, serdes.LONG, retention_ms=4 * GAP_MS)
    return (
        Topology()
        .add_source("clicks", "clicks", key_deserializer=serdes.STRING.deserialize)
        .add_processor("sessions", Sessions, "clicks", stores=[store])
        .add_sink(
            "out",
            "sessions",
            "sessions",
            key_serializer=serdes.STRING.serialize,
            value_serializer=serdes.JSON.serialize,
        )
    )
