"""Reports devices that sent no records for a minute, using wall-clock punctuation.

Unlike stream-time punctuation, it works even if no new records arrive. ``python -m pytest examples/test_idle_alarm.py``
runs its test.
"""

from __future__ import annotations

from zkconsumer.topology import Processor, ProcessorContext, PunctuationType, Record, Topology, serdes, stores

IDLE_MS, CHECK_MS = 60_000, 10_000


class IdleAlarm(Processor):
    """Tracks when each device was last seen, and reports when a device becomes idle and when it is back."""

    def init(self, context: ProcessorContext) -> None:
        """Get the stores, and schedule a check for idle devices every ten seconds."""
        self._context = context
        self._last_seen = context.get_state_store("last-seen")
        self._alarms = context.get_state_store("alarms")
        context.schedule(CHECK_MS, PunctuationType.WALL_CLOCK_TIME, self._report_idle)

    def process(self, record: Record) -> None:
        """Update the time when the record's device was last seen, and end the device's alarm, if any."""
        now = self._context.current_system_time_ms
        self._last_seen.put(record.key, now)
        if self._alarms.delete(record.key) is not None:
            self._context.forward(Record(record.key, "back", now))

    def _report_idle(self, now_ms: int) -> None:
        for device, seen in self._last_seen.all():
            if now_ms - seen >= IDLE_MS and self._alarms.put_if_absent(device, now_ms) is None:
                self._context.forward(Record(device, "idle", now_ms))


def topology() -> Topology:
    """Return the topology, which reads the topic ``measurements`` and writes the topic ``alarms``."""
    builders = [stores.key_value(name, serdes.STRING, serdes.LONG) for name in ("last-seen", "alarms")]
    return (
        Topology()
        .add_source("measurements", "measurements", key_deserializer=serdes.STRING)
        .add_processor("idle", IdleAlarm, "measurements", stores=builders)
        .add_sink("out", "alarms", "idle", key_serializer=serdes.STRING, value_serializer=serdes.STRING)
    )
