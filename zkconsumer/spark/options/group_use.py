"""Whether a query joins the group, commits the group's offsets, and needs ZooKeeper."""

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
        is_member: the query joins the group (``membership``).
        commits: the group's offsets are committed (``commitOffsets``).
        has_zookeeper: the query connects to ZooKeeper, for membership, for offsets or to find the brokers.
    """

    is_member: bool
    commits: bool
    has_zookeeper: bool

    @classmethod
    def parse(cls, reader: OptionReader, subscription: Subscription, *, batch: bool) -> GroupUse:
        """Read ``membership`` and ``commitOffsets``, and check options that depend on them.

        Args:
            batch: whether the options are those of a batch read (``spark.read``).

        Raises:
            ConfigurationError: a value is not valid, or options contradict each other.
        """
        is_member = reader.get("membership", "none" if batch else None) == "group"
        if batch and is_member:
            raise ConfigurationError("option 'membership' must be 'none' or absent for batch reads, got 'group'")
        if not batch:
            _refuse_ending(reader)
        if is_member and subscription.assigned:
            raise ConfigurationError(
                "option assign requires membership=none, since the group assigns partitions to its members; use "
                "subscribe to join the group"
            )
        commits = reader.get("commitOffsets", is_member)
        finds_brokers_in_zookeeper = not reader.given("bootstrap.servers")
        has_zookeeper = is_member or commits or finds_brokers_in_zookeeper or reader.given("zookeeper.connect")
        if not has_zookeeper and reader.get("startingOffsets", "") == "group":
            raise ConfigurationError(
                "option startingOffsets = 'group' requires the option zookeeper.connect; set it, "
                "or start at 'earliest' or 'latest'"
            )
        return cls(is_member, commits, has_zookeeper)

    def check_consumer(self, consumer: ConsumerConfig | None) -> None:
        """Check the properties of the consumer that depend on ``membership``; None if a property is invalid.

        Raises:
            ConfigurationError: offsets are in Kafka, but the query does not join the group.
        """
        if consumer is not None and not self.is_member and consumer.offsets_storage != "zookeeper":
            raise ConfigurationError(
                f"property 'offsets.storage' must be 'zookeeper' with membership=none, got {consumer.offsets_storage!r}"
            )

    def consumer_defaults(self) -> dict[str, str]:
        """Return values of required properties of the consumer that this query does not need."""
        defaults = {} if self.is_member or self.commits else {"group.id": "zkconsumer-spark"}
        return defaults if self.has_zookeeper else {**defaults, "zookeeper.connect": "none"}


def _refuse_ending(reader: OptionReader) -> None:
    for name in (option.name for option in OPTIONS if option.name.startswith("ending")):
        if reader.given(name):
            raise ConfigurationError(f"option {name!r} is valid for batch reads only")
