"""What a DStream of ``kafka_utils`` reads in each batch, and what it remembers of that.

A batch of Spark Streaming is a time and an RDD. A source decides once, at the first call for a time, which ranges of
offsets that RDD has, and keeps them in a ledger. The ledger travels with the function that Spark writes into its
checkpoint, so that a batch which is run again after a crash has the same ranges; connections do not travel.

Source: Spark 2.4 DirectKafkaInputDStream, KafkaReceiver, ReliableKafkaReceiver for what users expect.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from zkconsumer.broker import protocol
from zkconsumer.config import ConsumerConfig
from zkconsumer.message import TopicPartition
from zkconsumer.retry import retrying
from zkconsumer.spark.driver.planner import Planner
from zkconsumer.spark.driver.splitting import tasks as tasks_of
from zkconsumer.spark.dstreams.clients import BROKER_TIMEOUT, clients
from zkconsumer.spark.dstreams.ledger import Ledger
from zkconsumer.spark.dstreams.rates import Rates
from zkconsumer.spark.offset import INITIAL, FetchTask, Ranges, from_offset
from zkconsumer.spark.options.source_options import SourceOptions


class Source:
    """Decides what batches have; used by the thread in which Spark makes batches, and told by another what is done.

    Attributes:
        key: names its connections; in a recovered context it is another one, which has its own.
        seconds: of a batch.
    """

    #: The property with the configured limit on records per second.
    _limit: ClassVar[str]

    def __init__(self, seconds: float) -> None:
        self.key, self.seconds = uuid.uuid4().hex, seconds
        self._ledger = Ledger()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, key=uuid.uuid4().hex)

    @property
    def rates(self) -> Rates:
        """The limits on its batches."""
        return Rates.of(self.key, self.seconds, self._limit)

    def close(self) -> None:
        """Close its connections in this process."""
        clients.close(self.key)
        Rates.forget(self.key)

    def ranges_at(self, milliseconds: int) -> Ranges:
        """Return the ranges of the batch of that time, always the same."""
        if milliseconds not in self._ledger:
            self._ledger.add(milliseconds, self._plan())
        return self.planned_at(milliseconds)

    def planned_at(self, milliseconds: int) -> Ranges:
        """Return the ranges of a batch that was made before; nothing where it is not known."""
        return dict(self._ledger.get(milliseconds) or {})

    def unfinished(self) -> set[int]:
        """Return the times of the planned batches that are not known to be done."""
        return self._ledger.unfinished()

    def complete(self, times: Iterable[int]) -> None:
        """Take note that batches are done."""
        self._ledger.complete(times)

    def tasks(self, ranges: Ranges) -> list[FetchTask]:
        """Return what the tasks of such a batch are told."""
        raise NotImplementedError

    def _plan(self) -> Any:
        """Return what the ledger shall have of the next batch."""
        raise NotImplementedError


class DirectSource(Source):
    """All partitions of some topics, as they were at the start; without a group and without ZooKeeper.

    Args:
        seconds: of a batch.
        positions: where to begin; None for where ``auto.offset.reset`` says.
    """

    _limit = "spark.streaming.kafka.maxRatePerPartition"

    def __init__(
        self,
        seconds: float,
        params: Mapping[str, str],
        topics: list[str],
        positions: Mapping[TopicPartition, int] | None,
    ) -> None:
        super().__init__(seconds)
        self._params = dict(params)
        client = clients.direct(self.key, params)
        if positions is None:
            reset = str(params.get("auto.offset.reset", "largest")).lower()
            where = protocol.EARLIEST if reset in ("smallest", "earliest") else protocol.LATEST
            positions = client.logs.offsets(client.partitions(topics), where)
        self._positions = dict(positions)

    def _plan(self) -> Ranges:
        client = clients.direct(self.key, self._params)
        ends = retrying(BROKER_TIMEOUT)(lambda: client.logs.offsets(self._positions, protocol.LATEST))
        waiting = {p: max(0, ends[p] - position) for p, position in self._positions.items()}
        shares = self.rates.direct(waiting)
        ranges = {p: (position, position + shares.get(p, 0)) for p, position in self._positions.items()}
        self._positions = {p: until for p, (_, until) in ranges.items()}
        return ranges

    def tasks(self, ranges: Ranges) -> list[FetchTask]:
        """See ``Source``; one for each partition, also where it has nothing."""
        return clients.direct(self.key, self._params).tasks(ranges)


class GroupSource(Source):
    """The share of a member of a ZooKeeper-coordinated group.

    Args:
        seconds: of a batch.
    """

    _limit = "spark.streaming.receiver.maxRate"

    def __init__(self, seconds: float, config: ConsumerConfig, topics: Mapping[str, int]) -> None:
        super().__init__(seconds)
        self._config = config
        self._topics = dict(topics)
        self._last: dict[str, Any] = INITIAL

    def _plan(self) -> dict[str, Any] | None:
        end = self._planner().plan(self._last, self.rates.group())
        new = None if end is self._last else end
        self._last = end
        return new

    def planned_at(self, milliseconds: int) -> Ranges:
        """See ``Source``; the ledger has Spark's offsets."""
        end = self._ledger.get(milliseconds)
        return from_offset(end) if end is not None else {}

    def tasks(self, ranges: Ranges) -> list[FetchTask]:
        """See ``Source``."""
        planner = self._planner()
        return list(tasks_of(self._options(), ranges, planner.find_leaders(ranges), planner.brokers(), 2))

    def complete(self, times: Iterable[int]) -> None:
        """Store the group's offsets of batches whose jobs have succeeded, once all before them are done, too."""
        for end in self._ledger.complete(times):
            if end is not None:
                self._planner().acknowledge(end)

    def _options(self) -> SourceOptions:
        options = SourceOptions.parse(
            {"zookeeper.connect": "none", "group.id": "none", "subscribe": ",".join(self._topics)}
        )
        return options.for_consumer(self._config, self._topics)

    def _planner(self) -> Planner:
        return clients.group(self.key, self._options, self._last)
