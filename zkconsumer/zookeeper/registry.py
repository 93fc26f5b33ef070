"""Paths and JSON of the znodes under ``/consumers`` and ``/brokers``.

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

from zkconsumer.argument_checks import check_integer
from zkconsumer.config.properties import FOREIGN_PROTOCOLS, SECURITY_PROTOCOLS
from zkconsumer.config.types import join_words
from zkconsumer.errors import ConfigurationError, RegistrationError, ZkConsumerError
from zkconsumer.excerpt import excerpt
from zkconsumer.message import Endpoint, TopicPartition

BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")

#: Lowest registration version of brokers that support ApiVersions requests: Kafka 0.10 writes version 3, Kafka 0.9
#: writes 2, and Kafka 0.8 writes 1.
_FIRST_WITH_API_VERSIONS = 3

_FILTERS = ("white_list", "black_list")
OFFSET_MAX = (1 << 63) - 1

#: Maximum number of streams per member and topic. It bounds the list of group threads that each member builds.
MAX_STREAMS = 1000

_INT_MAX = (1 << 31) - 1
_MAX_HOST_LENGTH = 255

#: Exceptions raised for malformed JSON, and for JSON with an unexpected structure.
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class GroupPaths:
    """Paths of a group's znodes."""

    group: str

    @property
    def root(self) -> str:
        """Path of the group's root znode."""
        return f"/consumers/{self.group}"

    @property
    def ids(self) -> str:
        """Path of the znode whose children are the members' registrations."""
        return f"{self.root}/ids"

    @property
    def application(self) -> str:
        """Path of the ephemeral znode that contains the process id and host name of a running ``StreamsApp``."""
        return f"{self.root}/application"

    @property
    def subtrees(self) -> tuple[str, ...]:
        """Paths of the ``ids``, ``owners`` and ``offsets`` znodes, by which some monitoring tools find groups."""
        return self.ids, f"{self.root}/owners", f"{self.root}/offsets"

    def registration(self, consumer_id: str) -> str:
        """Return the path of a member's registration."""
        return f"{self.ids}/{consumer_id}"

    def owners(self, topic: str) -> str:
        """Return the path of the znode whose children are a topic's owner znodes."""
        return f"{self.root}/owners/{topic}"

    def owner(self, partition: TopicPartition) -> str:
        """Return the path of a partition's owner znode, which contains the id of the owning thread."""
        return f"{self.owners(partition.topic)}/{partition.partition}"

    def offset(self, partition: TopicPartition) -> str:
        """Return the path of a partition's offset znode, which contains the next offset to consume, in decimal."""
        return f"{self.root}/offsets/{partition.topic}/{partition.partition}"

    def offset_topic_id(self, partition: TopicPartition) -> str:
        """Return the path of the znode that stores the topic id of a committed offset; JVM members do not use it."""
        return f"{self.offset_topic_ids(partition.topic)}/{partition.partition}"

    def offset_topic_ids(self, topic: str) -> str:
        """Return the path of the znode whose children are a topic's ``offset_topic_id`` znodes."""
        return f"{self.root}/zkconsumer/offset-topic-ids/{topic}"


def topic_path(topic: str) -> str:
    """Return the path of the znode that lists a topic's partitions."""
    return f"{BROKER_TOPICS}/{topic}"


def is_valid_topic_name(name: object) -> bool:
    """Return whether ``name`` is a valid topic name.

    Source: Kafka 1.1 org.apache.kafka.common.internals.Topic.validate.
    """
    return isinstance(name, str) and name not in (".", "..") and _TOPIC.fullmatch(name) is not None


def check_topic_name(name: str) -> None:
    """Raise ``ConfigurationError`` if ``name`` is not a valid topic name."""
    if not is_valid_topic_name(name):
        raise ConfigurationError(
            f"topic name must consist of 1 to 249 ASCII letters, digits, '.', '_' or '-', and not be '.' or '..', got "
            f"{excerpt(name) if isinstance(name, str) else repr(name)}"
        )


def check_stream_count(subscription: str, count: int) -> int:
    """Return ``count`` as an int, or raise ``ConfigurationError`` unless it is between 1 and ``MAX_STREAMS``.

    Args:
        subscription: topic or filter, used in the error message.
        count: number of streams.
    """
    return check_integer(f"{subscription}: number of streams", count, 1, MAX_STREAMS)


def new_consumer_id(group: str, configured: str | None = None) -> str:
    """Create a consumer id: ``<group>_<configured>``, or by default ``<group>_<host>-<milliseconds>-<hex digits>``."""
    if configured:
        return f"{group}_{configured}"
    # As in Kafka's old consumer: the high 64 bits of a random UUID in unpadded hex, truncated to eight digits.
    digits = f"{uuid.uuid4().int >> 64:x}"[:8]
    return f"{group}_{socket.gethostname()}-{int(time.time() * 1000)}-{digits}"


def thread_ids(consumer_id: str, streams: int) -> list[str]:
    """Return a member's thread ids: ``<consumer id>-0``, ``<consumer id>-1`` and so on, without zero padding."""
    return [f"{consumer_id}-{number}" for number in range(streams)]


def consumer_of(thread_id: str) -> str:
    """Return the consumer id of a thread id; see ``thread_ids``."""
    return thread_id.rpartition("-")[0]


def is_thread_id(text: str) -> bool:
    """Return whether ``text`` has the form of a thread id."""
    return re.fullmatch(r"(?s:.+)-[0-9]+", text) is not None


def parse_owner(data: bytes) -> str:
    """Return the content of an owner znode. It is a thread id; clients such as kafka-node write a consumer id."""
    return data.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Registration:
    """A member's subscription, as stored in its registration znode.

    Attributes:
        subscription: number of streams by topic. With a topic filter, its regular expression is the only key.
        pattern: ``static``, ``white_list`` or ``black_list``.
    """

    subscription: Mapping[str, int]
    pattern: str = "static"

    @classmethod
    def static(cls, topic_count: Mapping[str, int]) -> Registration:
        """Create the registration of a member without a topic filter.

        Args:
            topic_count: number of streams by topic.

        Raises:
            ConfigurationError: a topic name is not allowed by Kafka, or a number of streams is out of range.
        """
        for topic in topic_count:
            check_topic_name(topic)
        return cls({topic: check_stream_count(f"topic {topic!r}", count) for topic, count in topic_count.items()})

    @property
    def is_filter(self) -> bool:
        """Whether the subscription is a topic filter."""
        return bool(self.subscription) and self.pattern in _FILTERS

    def to_json(self) -> bytes:
        """Return JSON as written by JVM members: same key order, no whitespace, and the timestamp as a string."""
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
        """Parse a member's registration. As in Kafka's old consumer, unknown keys are ignored.

        Raises:
            RegistrationError: the znode does not contain a valid registration; the message includes its path and
                content.
        """
        try:
            content = json.loads(data)
            counts = content["subscription"].items()
            subscription = {topic: _integer("number of streams", count, 1, MAX_STREAMS) for topic, count in counts}
            pattern = content["pattern"]
            if not isinstance(pattern, str):
                raise TypeError(f"pattern must be a string, got {type(pattern).__name__}")
        except _MALFORMED as error:
            raise RegistrationError(
                f"{path} does not contain a valid consumer registration: {excerpt(data)} "
                f"({type(error).__name__}: {error}); the group cannot rebalance until the process that wrote the znode "
                "is stopped and the znode is deleted"
            ) from error
        if pattern in _FILTERS:
            subscription = dict(list(subscription.items())[:1])  # Kafka's old consumer uses only the first entry
        return cls(subscription, pattern)


def _integer(name: str, value: object, low: int, high: int) -> int:
    """Return ``value`` as an integer; some clients write a string of decimal digits instead of a JSON integer.

    Raises:
        ValueError: the value is not an integer, or is out of range.
    """
    number = int(value) if isinstance(value, str) and re.fullmatch("-?[0-9]{1,10}", value) else value
    if type(number) is not int or not low <= number <= high:
        raise ValueError(f"{name} must be an integer between {low} and {high}, got {excerpt(str(value))}")
    return number


def parse_partition_number(text: str) -> int | None:
    """Parse a znode name or JSON key as a partition number; return None if it is not one.

    Only Kafka's own format is accepted. Otherwise, names such as ``1`` and ``01`` would denote the same partition.
    """
    if not re.fullmatch("0|[1-9][0-9]{0,9}", text) or int(text) > _INT_MAX:
        return None
    return int(text)


def parse_partitions(topic: str, data: bytes) -> list[int]:
    """Parse a topic's znode and return the sorted partition numbers.

    Raises:
        ZkConsumerError: the znode does not contain a valid list of partitions.
    """
    try:
        numbers = {name: parse_partition_number(name) for name, _ in json.loads(data)["partitions"].items()}
    except _MALFORMED as error:
        raise ZkConsumerError(
            f"{topic_path(topic)} does not contain a valid list of partitions: {excerpt(data)}"
        ) from error
    invalid = [name for name, number in numbers.items() if number is None]
    if invalid:
        raise ZkConsumerError(
            f"{topic_path(topic)} does not contain a valid list of partitions: {excerpt(invalid[0])} is not a "
            f"partition number; the znode contains {excerpt(data)}"
        )
    return sorted(number for number in numbers.values() if number is not None)


def parse_topic_id(topic: str, data: bytes) -> uuid.UUID | None:
    """Parse a topic's znode and return the topic id, or None if there is none, as before Kafka 2.8.

    Raises:
        ZkConsumerError: the znode does not contain a valid topic id.

    Source: Kafka 2.8 TopicZNode.TopicIdReplicaAssignment; 16 bytes in URL-safe Base64 without padding.
    """
    try:
        text = json.loads(data).get("topic_id")
        return None if text is None else uuid.UUID(bytes=base64.urlsafe_b64decode(f"{text}=="))
    except _MALFORMED as error:
        raise ZkConsumerError(f"{topic_path(topic)} does not contain a valid topic id: {excerpt(data)}") from error


def parse_broker(node: str, data: bytes, protocol: str) -> Endpoint:
    """Parse a broker's znode and return the endpoint of its listener for ``protocol``.

    Args:
        node: znode name, which is the broker id.
        data: znode data.
        protocol: value of ``security.protocol``.

    Raises:
        ZkConsumerError: the znode does not contain a valid broker registration, or the broker has no listener for
            ``protocol``.
    """
    try:
        if parse_partition_number(node) is None:  # broker ids have the same format
            raise ValueError("the znode name is not a broker id")
        content = json.loads(data)
        protocols = content.get("listener_security_protocol_map") or {}
        version = _integer("version", content.get("version", 1), 0, _INT_MAX)
        has_api_versions = version >= _FIRST_WITH_API_VERSIONS
        listeners: dict[str, str] = {}
        for endpoint in content.get("endpoints") or ():
            listener, _, address = endpoint.partition("://")
            name = protocols.get(listener, listener)
            listeners.setdefault(FOREIGN_PROTOCOLS.get(name, name), address)
        port = _integer("port", content.get("port", -1), -1, 65535)
        if content.get("host") and port > 0:
            listeners.setdefault("PLAINTEXT", f"{content['host']}:{port}")
        if protocol in listeners:
            return _broker_address(listeners[protocol])._replace(has_api_versions=has_api_versions)
    except _MALFORMED as error:
        raise ZkConsumerError(
            f"{BROKER_IDS}/{node} does not contain a valid broker registration: {excerpt(data)} ({excerpt(str(error))})"
        ) from error
    usable = [name for name in SECURITY_PROTOCOLS if name in listeners]
    remedy = f"set security.protocol to {join_words(usable, 'or')}" if usable else "add one to the broker's listeners"
    raise ZkConsumerError(f"broker {node} has no {protocol} listener ({excerpt(data)}); {remedy}")


def _broker_address(text: str) -> Endpoint:
    endpoint = Endpoint.parse(text)
    if not endpoint.host.isprintable() or " " in endpoint.host or len(endpoint.host) > _MAX_HOST_LENGTH:
        raise ValueError(f"{excerpt(endpoint.host)} is not a valid host name")
    return endpoint


def format_offset(offset: int) -> bytes:
    """Return the content of an offset znode; see ``parse_offset``."""
    return b"%d" % offset


def parse_offset(path: str, data: bytes | None) -> int:
    """Parse an offset znode and return the offset; -1 if ``data`` is empty or None, or if the offset is negative.

    An offset of ``OFFSET_MAX`` is returned as ``OFFSET_MAX - 1``: no record can have the offset ``OFFSET_MAX``, and
    fetchers use this value for "no stop offset".

    Raises:
        ZkConsumerError: the znode does not contain an integer of at most ``OFFSET_MAX``; the message includes its path
            and content.
    """
    if not data:
        return -1
    offset = int(data) if re.fullmatch(rb"\s*[+-]?[0-9]{1,19}\s*", data) else OFFSET_MAX + 1
    if offset > OFFSET_MAX:
        raise ZkConsumerError(
            f"{path} must contain an integer offset of at most {OFFSET_MAX}, got {excerpt(data)}; write the next "
            "offset to consume to the znode"
        )
    return max(-1, min(offset, OFFSET_MAX - 1))
