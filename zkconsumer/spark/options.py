"""The options of the data source: those of its own, and every property of the consumer."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from zkconsumer.config import ConsumerConfig, property_names
from zkconsumer.errors import ConfigurationError
from zkconsumer.registry import check_topic

#: Properties that would contradict what the query does, with the reason.
_REFUSED = {
    "auto.commit.enable": "offsets are stored when a batch is done",
    "auto.commit.interval.ms": "offsets are stored when a batch is done",
    "consumer.timeout.ms": "a query that finds nothing waits; see unavailable.timeout.ms",
    "consumer.id": "each start of the query is a new member",
}

_OWN = (
    "subscribe",
    "streams",
    "includeHeaders",
    "minPartitions",
    "handover.timeout.ms",
    "unavailable.timeout.ms",
)

# What readStream itself passes on.
_FOREIGN = ("path",)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one query, checked.

    Attributes:
        topics: from ``subscribe``, names with commas.
        streams: thread ids per topic, default 1: the query's share of the group.
        include_headers: ``includeHeaders``, default false: adds the column.
        min_partitions: ``minPartitions``: at least so many tasks per batch; default the number of cores.
        handover_timeout: seconds, from ``handover.timeout.ms`` (5000): how long a partition that goes to another
            member waits for its batch. Keep it below what JVM members retry for (4 times 2 s by default).
        unavailable_timeout: seconds, from ``unavailable.timeout.ms`` (120000): how long brokers may be away.
        consumer: every other option, by the names of the old consumer.
    """

    topics: tuple[str, ...]
    streams: int
    include_headers: bool
    min_partitions: int | None
    handover_timeout: float
    unavailable_timeout: float
    consumer: ConsumerConfig

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Check options as Spark hands them over, their names in any case.

        Raises:
            ConfigurationError: names the option, the value and what is expected.
        """
        left = {key.lower(): value for key, value in options.items()}
        for name in _FOREIGN:
            left.pop(name, None)
        for name, reason in _REFUSED.items():
            if name in left:
                raise ConfigurationError(f"option {name!r} cannot be set for a Spark query: {reason}")

        def take(name: str) -> str | None:
            return left.pop(name.lower(), None)

        def number(name: str, default: int | None, least: int = 1) -> int | None:
            text = take(name)
            if text is None:
                return default
            if not re.fullmatch(r"\s*[0-9]+\s*", text) or int(text) < least:
                raise ConfigurationError(f"option {name} = {text!r}: a whole number from {least} on is expected")
            return int(text)

        subscribe = take("subscribe")
        topics = tuple(topic.strip() for topic in (subscribe or "").split(",") if topic.strip())
        if not topics:
            raise ConfigurationError("option 'subscribe' is missing: topic names with commas are expected")
        for topic in topics:
            try:
                check_topic(topic)
            except ConfigurationError as error:
                raise ConfigurationError(f"option subscribe = {subscribe!r}: {error}") from None
        headers = take("includeHeaders") or "false"
        if headers.lower() not in ("true", "false"):
            raise ConfigurationError(f"option includeHeaders = {headers!r}: 'true' or 'false' is expected")
        streams, min_partitions = number("streams", 1), number("minPartitions", None)
        handover = number("handover.timeout.ms", 5000, 0)
        unavailable = number("unavailable.timeout.ms", 120_000)
        known = property_names()
        for name in sorted(left):
            if name not in known:
                near = difflib.get_close_matches(name, [*known, *_OWN], 1, 0.5)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ConfigurationError(f"option {name!r} is not known{hint}")
        assert streams is not None
        assert handover is not None
        assert unavailable is not None
        return cls(
            topics,
            streams,
            headers.lower() == "true",
            min_partitions,
            handover / 1000,
            unavailable / 1000,
            ConsumerConfig.from_dict(left, strict=True),
        )
