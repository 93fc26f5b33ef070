"""How much a batch takes: limits on it, shared fairly among partitions, and waiting for a worthwhile batch.

Source: Spark 4.2 KafkaMicroBatchStream for the options; shares differ on purpose. Spark gives each partition a share in
proportion to what waits in it, so that a partition with little waits as long as the one with most. Here each may have
the same, and what some do not need is for the others (max-min fairness).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.values import Take, number

#: Offsets of a batch where no option says more: a gigabyte of small records.
DEFAULT_LIMIT = 10_000_000

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Limits:
    """What the options say.

    Attributes:
        most: ``maxOffsetsPerTrigger``, default ``DEFAULT_LIMIT``.
        least: ``minOffsetsPerTrigger``: with fewer a batch waits.
        patience: seconds, ``maxTriggerDelay`` (15m): but no longer than this after the last one was planned.
    """

    most: int = DEFAULT_LIMIT
    least: int = 0
    patience: float = 900.0

    @classmethod
    def parse(cls, take: Take) -> Limits:
        """Read the options.

        Raises:
            ConfigurationError: one of them cannot be read, or they contradict each other.
        """
        most = number(take, "maxOffsetsPerTrigger", None) or DEFAULT_LIMIT
        least = number(take, "minOffsetsPerTrigger", None) or 0
        if least > most:
            raise ConfigurationError(
                f"option minOffsetsPerTrigger = {least} is more than maxOffsetsPerTrigger = {most}"
            )
        return cls(most, least, _duration("maxTriggerDelay", take("maxTriggerDelay") or "15m"))


@dataclass
class Admission:
    """Applies limits to one batch after the other.

    Args:
        clock: seconds.
    """

    limits: Limits
    clock: Callable[[], float]
    _planned_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._planned_at = self.clock()

    def admit(
        self, waiting: Mapping[TopicPartition, int], *, most: int | None, at_once: bool = False
    ) -> dict[TopicPartition, int]:
        """Return how many offsets of each partition the next batch takes; nothing where it is to wait.

        Args:
            waiting: the offsets that each partition has.
            most: of all together; None for no limit.
            at_once: do not wait for more, since none may come.
        """
        total = sum(waiting.values())
        if not total:
            return {}
        if total < self.limits.least and not at_once and self.clock() - self._planned_at < self.limits.patience:
            return {}
        self._planned_at = self.clock()
        return dict(waiting) if most is None else fair_shares(waiting, most)


def fair_shares(waiting: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Return shares of ``most`` that are as equal as can be; none is larger than what waits."""
    shares, left = {}, most
    by_size = sorted((partition for partition, count in waiting.items() if count > 0), key=lambda p: (waiting[p], p))
    for index, partition in enumerate(by_size):
        share = min(waiting[partition], left // (len(by_size) - index))
        shares[partition] = share
        left -= share
    return {partition: share for partition, share in shares.items() if share}


def _duration(name: str, text: str) -> float:
    """Read a duration as Spark writes it, such as 15m, 90s or 500ms; a number alone means milliseconds."""
    parts = re.fullmatch(r"\s*([0-9]{1,12})\s*(ms|s|m|min|h|d)?\s*", text.lower())
    if parts is None:
        raise ConfigurationError(f"option {name} = {text!r}: a duration is expected, such as 15m, 90s or 500ms")
    return int(parts[1]) * _UNITS[parts[2] or "ms"]
