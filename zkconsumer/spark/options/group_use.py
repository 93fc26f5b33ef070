"""Whether a query joins the group, commits the group's offsets, and needs ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.options.option_reader import OptionReader, as_written, invalid
from zkconsumer.spark.options.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Membership:
    """How a query uses its group.

    Attributes:
        is_member: the query joins the group (``membership``).
        commits: the group's offsets are committed (``commit.mode``).
        has_zookeeper: the query connects to ZooKeeper, for membership, for offsets or to find the brokers.
    """

    is_member: bool
    commits: bool
    has_zookeeper: bool

    @classmethod
    def parse(cls, reader: OptionReader, subscription: Subscription, *, batch: bool) -> Membership:
        """Read ``membership`` and ``commit.mode``, and check options that depend on them.

        Args:
            batch: whether the options are those of a batch read (``spark.read``).

        Raises:
            ConfigurationError: a value is not valid, or options contradict each other.
        """
        is_member = reader.choice("membership", "none" if batch else None) == "group"
        if batch and is_member:
            raise ConfigurationError("option membership must be 'none' or absent for batch reads, got 'group'")
        if not batch:
            _refuse_ending(reader)
        if is_member and subscription.assigned:
            raise ConfigurationError(
                "option assign requires membership=none, since the group assigns partitions to its members; use "
                "subscribe to join the group"
            )
        commits = _commits(reader, is_member)
        has_zookeeper = is_member or commits or "zookeeper.connect" in reader or "bootstrap.servers" not in reader
        storage = reader.peek("offsets.storage") or "zookeeper"
        if not is_member and storage.lower() != "zookeeper":
            raise invalid("offsets.storage", "'zookeeper' with membership=none", storage)
        if not has_zookeeper and (reader.peek("startingOffsets") or "").lower() == "group":
            raise ConfigurationError(
                "option startingOffsets = 'group' requires the option zookeeper.connect; set it, "
                "or start at 'earliest' or 'latest'"
            )
        return cls(is_member, commits, has_zookeeper)

    def consumer_defaults(self) -> dict[str, str]:
        """Return values of required properties of the consumer that this query does not need."""
        defaults = {} if self.is_member or self.commits else {"group.id": "zkconsumer-spark"}
        return defaults if self.has_zookeeper else {**defaults, "zookeeper.connect": "none"}


def _refuse_ending(reader: OptionReader) -> None:
    ending = [name for name in reader.unread() if name.startswith("ending")]
    if ending:
        raise ConfigurationError(f"option {as_written(ending[0])!r} is valid for batch reads only")


def _commits(reader: OptionReader, is_member: bool) -> bool:
    if (reader.peek("commit.mode") or "").lower() == "periodic":
        raise ConfigurationError(
            "option commit.mode must be 'on-batch' or 'off', got 'periodic': periodic commits could include offsets of "
            "a batch that has not finished, and a restart would skip its records"
        )
    return reader.choice("commit.mode", None if is_member else "off") == "on-batch"
