"""Determines whether a query joins the group, commits offsets, and needs ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.options.option_reader import OptionReader
from zkconsumer.spark.options.subscription import Subscription
from zkconsumer.spark.options.table import OPTIONS


@dataclass(frozen=True, slots=True)
class GroupUse:
    """How a query uses its group.

    Attributes:
        is_member: whether the query joins the group (``membership``).
        commits: whether the query commits the group's offsets (``commitOffsets``).
        has_zookeeper: whether the query connects to ZooKeeper, for group membership, offsets or broker discovery.
    """

    is_member: bool
    commits: bool
    has_zookeeper: bool

    @classmethod
    def parse(cls, reader: OptionReader, subscription: Subscription, *, batch: bool) -> GroupUse:
        """Parse ``membership`` and ``commitOffsets``, and validate the options that depend on them.

        Args:
            batch: whether the options belong to a batch read (``spark.read``).

        Raises:
            ConfigurationError: a value is invalid, or options conflict.
        """
        is_member = reader.get("membership", "none" if batch else None) == "group"
        if batch and is_member:
            raise ConfigurationError("option 'membership' must be 'none' or unset for batch reads, got 'group'")
        if not batch:
            _reject_ending(reader)
        if is_member and subscription.assigned:
            raise ConfigurationError(
                "option assign requires membership=none, because the group assigns partitions to its members; use "
                "subscribe to join the group"
            )
        commits = reader.get("commitOffsets", is_member)
        finds_brokers_in_zookeeper = not reader.given("bootstrap.servers")
        has_zookeeper = is_member or commits or finds_brokers_in_zookeeper or reader.given("zookeeper.connect")
        if not has_zookeeper and reader.get("startingOffsets", "") == "group":
            raise ConfigurationError(
                "option startingOffsets = 'group' requires the option zookeeper.connect, because the group's offsets "
                "are stored in ZooKeeper"
            )
        return cls(is_member, commits, has_zookeeper)

    def check_consumer(self, consumer: ConsumerConfig | None) -> None:
        """Validate the consumer properties that depend on ``membership``.

        Args:
            consumer: the consumer properties; None if they could not be parsed.

        Raises:
            ConfigurationError: offsets are stored in Kafka, but the query does not join the group.
        """
        if consumer is not None and not self.is_member and consumer.offsets_storage != "zookeeper":
            raise ConfigurationError(
                f"property 'offsets.storage' must be 'zookeeper' with membership=none, got {consumer.offsets_storage!r}"
            )

    def consumer_defaults(self) -> dict[str, str]:
        """Return placeholders for the required consumer properties that this query does not need."""
        defaults = {} if self.is_member or self.commits else {"group.id": "zkconsumer-spark"}
        return defaults if self.has_zookeeper else {**defaults, "zookeeper.connect": "none"}


def _reject_ending(reader: OptionReader) -> None:
    for name in (option.name for option in OPTIONS if option.name.startswith("ending")):
        if reader.given(name):
            raise ConfigurationError(f"option {name!r} is valid for batch reads only")
