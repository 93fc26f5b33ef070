"""Keep a message count per partition, and store it before the partition moves to another consumer.

``python examples/rebalance_listener.py consumer.properties orders counts``. Start it twice with the same properties to
see partitions move: the new owner resumes with the stored counts.
"""

import json
import signal
import sys
from collections.abc import Mapping, Set
from pathlib import Path

from zkconsumer import ConsumerConfig, ConsumerRebalanceListener, create_consumer
from zkconsumer.errors import ConsumerTimeoutError


class Counts(ConsumerRebalanceListener):
    """Message counts per partition, in memory and in one file per partition."""

    def __init__(self, folder: Path, topic: str) -> None:
        self._folder = folder
        self._topic = topic
        self._counts: dict[int, int] = {}

    def add(self, partition: int) -> None:
        """Count a message of ``partition``."""
        self._counts[partition] = self._counts.get(partition, 0) + 1

    def before_releasing_partitions(self, partitions: Mapping[str, Set[int]]) -> None:
        """Store the counts of ``partitions``. Their messages are no longer delivered."""
        for partition in partitions.get(self._topic, ()):
            self._file(partition).write_text(json.dumps(self._counts.pop(partition, 0)))
        print("revoked", {topic: sorted(numbers) for topic, numbers in partitions.items()})

    def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[str, Mapping[int, str]]) -> None:
        """Load the counts of newly assigned partitions."""
        owned = [p for p, thread in assignment.get(self._topic, {}).items() if thread.startswith(f"{consumer_id}-")]
        for partition in owned:
            if partition not in self._counts:
                file = self._file(partition)
                self._counts[partition] = json.loads(file.read_text()) if file.exists() else 0
        print("assigned", {partition: self._counts[partition] for partition in sorted(owned)})

    def store(self) -> None:
        """Store all counts."""
        for partition, count in self._counts.items():
            self._file(partition).write_text(json.dumps(count))

    def _file(self, partition: int) -> Path:
        return self._folder / f"{self._topic}-{partition}.json"


def main(properties: str, topic: str, folder: str) -> None:
    """Consume until a signal arrives, or no message arrives within ``consumer.timeout.ms``."""
    Path(folder).mkdir(exist_ok=True)
    counts = Counts(Path(folder), topic)
    consumer = create_consumer(ConsumerConfig.from_properties(properties))
    consumer.set_consumer_rebalance_listener(counts)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: consumer.stop())
    with consumer:
        stream = consumer.stream(topic)
        try:
            for message in stream:
                counts.add(message.partition)
        except ConsumerTimeoutError:
            pass
    counts.store()  # the listener is not called on shutdown


if __name__ == "__main__":
    main(*sys.argv[1:])
