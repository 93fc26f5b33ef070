"""Names of Kafka's error codes, and the exceptions raised for them.

Source: Kafka 4.3 org.apache.kafka.common.protocol.Errors.
"""

from __future__ import annotations

from kafka import errors

from zkconsumer.broker import protocol
from zkconsumer.errors import (
    ConfigurationError,
    GroupAuthorizationError,
    NotLeaderError,
    OffsetOutOfRangeError,
    RetriableError,
    TopicAuthorizationError,
    ZkConsumerError,
)

#: Error names that differ from kafka-python's, by error code.
_NAMES = {
    protocol.UNKNOWN_SERVER_ERROR: "UNKNOWN_SERVER_ERROR",
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
}

#: Exception class by error code; other codes map to RetriableError.
_CLASSES: dict[int, type[ZkConsumerError]] = {
    protocol.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    **dict.fromkeys(protocol.NO_LEADER, NotLeaderError),
    protocol.INVALID_TOPIC_EXCEPTION: ConfigurationError,
    protocol.TOPIC_AUTHORIZATION_FAILED: TopicAuthorizationError,
    protocol.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationError,
}

_REMEDIES = {
    protocol.INVALID_TOPIC_EXCEPTION: "correct the topic name",
    protocol.TOPIC_AUTHORIZATION_FAILED: "grant READ on the topic to the principal of this client",
    protocol.GROUP_AUTHORIZATION_FAILED: "grant READ on the group to the principal of this client",
}


def error_name(code: int) -> str:
    """Return the name and code of an error, for example ``NOT_LEADER_OR_FOLLOWER (6)``."""
    known = errors.for_code(code)
    name = _NAMES.get(code) or (known.message if known.errno == code else "")
    return f"{name} ({code})" if name else f"error {code}"


def broker_error(code: int, failure: str) -> ZkConsumerError:
    """Return the exception for a broker's error code; most are retriable.

    Args:
        failure: description of the failed operation, such as ``could not fetch partition t-0 from broker h:9092``.
    """
    remedy = _REMEDIES.get(code, "")
    kind = _CLASSES.get(code, RetriableError)
    return kind(f"{failure}: {error_name(code)}" + (f"; {remedy}" if remedy else ""))


def denied_topic_error(topic: str) -> ZkConsumerError:
    """Return the exception for a topic that the client is not authorized to describe or read."""
    return broker_error(protocol.TOPIC_AUTHORIZATION_FAILED, f"access to topic {topic!r} was denied")
