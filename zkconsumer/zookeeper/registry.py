"""The znodes under ``/consumers`` and ``/brokers``: their paths and their JSON; no decisions here.

Source: Kafka 1.1 kafka.utils.ZkUtils, ZKGroupDirs, kafka.consumer.TopicCount, kafka.cluster.Broker.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from zkconsumer.errors import ConfigurationError, RegistrationError, ZkConsumerError
from zkconsumer.message import Endpoint, TopicPartition

BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")

#: The version of a broker's znode that 0.10 began with; 0.8 writes 1 and 0.9 writes 2.
_FIRST_THAT_TELLS_VERSIONS = 3

_FILTERS = ("white_list", "black_list")
OFFSET_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class GroupPaths:
    """Where the znodes of one group are."""

    group: str

    @property
    def root(self) -> str:
        """The group's own znode."""
        return f"/consumers/{self.group}"

    @property
    def ids(self) -> str:
        """Parent of the registrations."""
        return f"{self.root}/ids"

    @property
    def subtrees(self) -> tuple[str, ...]:
        """Where registrations, owners and offsets are; some monitors know groups by these."""
        return self.ids, f"{self.root}/owners", f"{self.root}/offsets"

    def registration(self, consumer_id: str) -> str:
        """One member's registration."""
        return f"{self.ids}/{consumer_id}"

    def owners(self, topic: str) -> str:
        """Parent of the owner znodes of a topic."""
        return f"{self.root}/owners/{topic}"

    def owner(self, partition: TopicPartition) -> str:
        """The znode whose content is the thread id that owns the partition."""
        return f"{self.owners(partition.topic)}/{partition.partition}"

    def offset(self, partition: TopicPartition) -> str:
        """The znode whose content is the next offset to consume, in decimal."""
        return f"{self.root}/offsets/{partition.topic}/{partition.partition}"


def topic_path(topic: str) -> str:
    """The znode that lists a topic's partitions."""
    return f"{BROKER_TOPICS}/{topic}"


def is_topic(name: object) -> bool:
    """Whether a topic can be called so. Source: Kafka 1.1 org.apache.kafka.common.internals.Topic.validate."""
    return isinstance(name, str) and name not in (".", "..") and _TOPIC.fullmatch(name) is not None


def check_topic(name: str) -> None:
    """Refuse what no topic can be called."""
    if not is_topic(name):
        raise ConfigurationError(
            f"{name!r} cannot be a topic: 1 to 249 ASCII letters, digits, '.', '_' and '-' are expected"
        )


def check_streams(what: str, count: int) -> None:
    """Refuse a number of streams below one."""
    if type(count) is not int or count < 1:
        raise ConfigurationError(f"{what}: {count!r} streams are asked for; at least 1 is expected")


def new_consumer_id(group: str, configured: str | None = None) -> str:
    """Return ``group_host-milliseconds-8 hex digits``, or ``group_configured``."""
    if configured:
        return f"{group}_{configured}"
    # The JVM takes the un-padded hex of the high 64 bits of a random UUID, cut to eight.
    digits = f"{uuid.uuid4().int >> 64:x}"[:8]
    return f"{group}_{socket.gethostname()}-{int(time.time() * 1000)}-{digits}"


def thread_ids(consumer_id: str, streams: int) -> list[str]:
    """Return the thread ids of a member: ``consumer id-0`` and so on, not padded."""
    return [f"{consumer_id}-{number}" for number in range(streams)]


@dataclass(frozen=True, slots=True)
class Registration:
    """What a member subscribes to.

    ``pattern`` is ``static`` or one of the two filter words; with a filter, ``subscription`` has the one key
    that is the regular expression.
    """

    subscription: Mapping[str, int]
    pattern: str = "static"

    @classmethod
    def static(cls, topic_count: Mapping[str, int]) -> Registration:
        """Return that of a member that names its topics, with the number of streams of each.

        Raises:
            ConfigurationError: a name is none of a topic, or fewer than one stream is asked for.
        """
        for topic, count in topic_count.items():
            check_topic(topic)
            check_streams(f"topic {topic!r}", count)
        return cls(dict(topic_count))

    @property
    def is_filter(self) -> bool:
        """Whether the subscription is a regular expression."""
        return bool(self.subscription) and self.pattern in _FILTERS

    def to_json(self) -> bytes:
        """Return the JSON as the JVM writes it: keys in this order, no blanks, the timestamp a string."""
        return json.dumps(
            {
                "version": 1,
                "subscription": dict(self.subscription),
                "pattern": self.pattern,
                "timestamp": str(int(time.time() * 1000)),
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def from_json(cls, path: str, data: bytes) -> Registration:
        """Read any member's registration, as leniently as the JVM does.

        Raises:
            RegistrationError: it is not one; names path and content.
        """
        try:
            content = json.loads(data)
            subscription = {str(topic): int(count) for topic, count in content["subscription"].items()}
            pattern = str(content["pattern"])
            if pattern in _FILTERS:
                subscription = dict(list(subscription.items())[:1])  # as the JVM, which takes the first
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise RegistrationError(
                f"{path} is not the registration of a consumer: {data[:200]!r} ({type(error).__name__}: {error}). "
                "No member of the group can rebalance until it is gone; stop whatever wrote it"
            ) from error
        if any(count < 1 for count in subscription.values()):
            raise RegistrationError(f"{path} asks for fewer than one stream: {data[:200]!r}")
        return cls(subscription, pattern)


def parse_partitions(topic: str, data: bytes) -> list[int]:
    """Return the sorted partition numbers from a topic's znode."""
    try:
        return sorted(int(partition) for partition in json.loads(data)["partitions"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ZkConsumerError(f"{topic_path(topic)} does not list partitions: {data[:200]!r}") from error


def parse_topic_id(topic: str, data: bytes) -> uuid.UUID | None:
    """Return the topic id from a topic's znode, or None if the brokers are older than 2.8.

    Raises:
        ZkConsumerError: the znode is not a topic's.

    Source: Kafka 2.8 TopicZNode.TopicIdReplicaAssignment; 16 bytes in URL-safe Base64 without padding.
    """
    try:
        text = json.loads(data).get("topic_id")
        return None if text is None else uuid.UUID(bytes=base64.urlsafe_b64decode(f"{text}=="))
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ZkConsumerError(f"{topic_path(topic)} has no valid topic id: {data[:200]!r}") from error


def parse_broker(node: str, data: bytes, protocol: str = "PLAINTEXT") -> Endpoint:
    """Return where a broker listens for a security protocol.

    Raises:
        ZkConsumerError: it has no such listener, or the znode is not a broker's.
    """
    try:
        content = json.loads(data)
        protocols = content.get("listener_security_protocol_map") or {}
        has_api_versions = int(content.get("version", 1)) >= _FIRST_THAT_TELLS_VERSIONS
        for endpoint in content.get("endpoints") or ():
            listener, _, address = endpoint.partition("://")
            if protocols.get(listener, listener) == protocol:
                return Endpoint.parse(address)._replace(has_api_versions=has_api_versions)
        if protocol == "PLAINTEXT" and content.get("host") and int(content.get("port", -1)) > 0:
            address = f"{content['host']}:{int(content['port'])}"
            return Endpoint.parse(address)._replace(has_api_versions=has_api_versions)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ZkConsumerError(f"{BROKER_IDS}/{node} does not describe a broker: {data[:200]!r}") from error
    raise ZkConsumerError(
        f"broker {node} has no {protocol} listener ({data[:200]!r}); add one, set security.protocol, or set "
        "bootstrap.servers to reach the brokers without /brokers"
    )


def parse_offset(path: str, data: bytes | None) -> int:
    """Return the offset in the offset znode ``path``; -1 where there is none, which is what -1 in it means too."""
    if not data:
        return -1
    offset = int(data) if re.fullmatch(rb"\s*[+-]?[0-9]{1,19}\s*", data) else OFFSET_MAX + 1
    if offset > OFFSET_MAX:
        raise ZkConsumerError(
            f"{path} holds {data[:50]!r}, not a whole number; write the next offset to consume, or delete it to have "
            "auto.offset.reset applied"
        )
    return max(-1, offset)
