"""Public exceptions. The class of an exception determines how to handle it.

Packages define more specific subclasses, such as ``JarsUnavailableError`` in the development cluster.

::

    ZkConsumerError
      ConfigurationError            fix the settings; never retried
      RetriableError                retry after a back-off
        BrokerUnavailableError
        NotLeaderError
        ZooKeeperUnavailableError
        AuthorizationError          access to a topic, the group or a znode was denied; it may be granted later
          TopicAuthorizationError
          GroupAuthorizationError
      AuthenticationError           authentication with a broker or ZooKeeper failed; never retried
      OwnershipLostError            another member may own the partition; stop committing
      ConsumerRebalanceFailedError  the first rebalance failed after all retries
      RegistrationError             a member's registration is malformed; the message contains its path and content
      AssignmentError               the settings of the group's members contradict each other
      MessageStreamsExistError      streams can be created only once per connector
      OffsetOutOfRangeError         carries the log start offset and the end offset
      MessageSizeTooLargeError      a record does not fit into one fetch; the message contains the limit and its name
      CorruptRecordError            carries the next offset to read and the offset after the corrupt record batch
      UnsupportedBrokerError        the broker and this client support no common version of a request
      ConsumerTimeoutError          no record arrived in time; the stream remains usable
      ClosedError                   the object was closed, or is used after a fork
      TopologyError                 a topology has conflicting nodes, stores or topics
      StreamsError                  a task failed; names the task, node, topic, partition and offset if known
        RecordRejectedError         the producer or the brokers rejected a record
        ProducerFencedError         another producer uses the transactional id
        ProducerFailedError         the producer failed for a reason other than a rejected record

``zookeeper/connection.py`` maps kazoo's errors to these classes, ``broker/channel.py`` those of sockets and of
kafka-python's decoders, and ``fetcher/decode.py`` those of the record decoder.
"""

from __future__ import annotations


class ZkConsumerError(Exception):
    """Base class for all errors in this package."""


class ConfigurationError(ZkConsumerError, ValueError):
    """A setting is missing or invalid, or contradicts another setting.

    Attributes:
        problems: line number in the properties file and description of each problem, if several settings were
            checked. The line number is 0 if the problem does not belong to a line.
    """

    problems: tuple[tuple[int, str], ...] = ()


class RetriableError(ZkConsumerError):
    """The operation may succeed if it is retried after a back-off."""


class BrokerUnavailableError(RetriableError):
    """A broker is unreachable, closed the connection, or did not respond in time."""


class NotLeaderError(RetriableError):
    """The broker is not, or no longer, the leader of the partition."""


class ZooKeeperUnavailableError(RetriableError):
    """ZooKeeper is unreachable, did not respond in time, or returned an unexpected error."""


class AuthorizationError(RetriableError):
    """The client is not authorized for a request. The request is retried, because access may be granted later."""


class TopicAuthorizationError(AuthorizationError):
    """A broker returned TOPIC_AUTHORIZATION_FAILED (29)."""


class GroupAuthorizationError(AuthorizationError):
    """A broker returned GROUP_AUTHORIZATION_FAILED (30), or ZooKeeper denied access to the group's znodes."""


class AuthenticationError(ZkConsumerError):
    """The client or the server failed to authenticate; never retried."""


class OwnershipLostError(ZkConsumerError):
    """The consumer does not own the partition, or its ZooKeeper session has expired or may have expired."""


class ConsumerRebalanceFailedError(ZkConsumerError):
    """The first rebalance failed after all retries."""


class RegistrationError(ZkConsumerError):
    """The registration znode of a group member is malformed."""


class AssignmentError(ZkConsumerError):
    """Partitions cannot be assigned because the settings of the group's members contradict each other."""


class MessageStreamsExistError(ZkConsumerError):
    """The connector already has streams; they can be created only once."""


class OffsetOutOfRangeError(ZkConsumerError):
    """The log of the partition does not contain the requested offset.

    Attributes:
        first: log start offset, -1 if unknown.
        end: end offset, -1 if unknown.
    """

    def __init__(self, message: str, first: int = -1, end: int = -1) -> None:
        super().__init__(message)
        self.first = first
        self.end = end


class MessageSizeTooLargeError(ZkConsumerError):
    """A record is larger than the fetch size (``fetch.message.max.bytes``), and was not returned completely."""


class CorruptRecordError(ZkConsumerError):
    """A record batch has a wrong CRC, structure, offset or decompressed size, or the broker cannot read it.

    Attributes:
        offset: next offset to read, at or before the corrupt batch.
        after: offset after the corrupt batch; -1 if its end is unknown, for example because no intact batch follows.
        entry: raw bytes of the corrupt batch; empty if its end is unknown.
    """

    def __init__(self, message: str, offset: int = -1, after: int = -1, entry: bytes = b"") -> None:
        super().__init__(message)
        self.offset = offset
        self.after = after
        self.entry = entry


class UnsupportedBrokerError(ZkConsumerError):
    """The broker and this client do not support a common version of a request."""


class ConsumerTimeoutError(ZkConsumerError):
    """No record arrived within ``consumer.timeout.ms``; the stream remains usable."""


class ClosedError(ZkConsumerError):
    """The object was closed, or is used in another process after a fork."""


class TopologyError(ZkConsumerError, ValueError):
    """A topology has conflicting nodes, stores or topics.

    Source: Kafka 3.9 org.apache.kafka.streams.errors.TopologyException.
    """


class StreamsError(ZkConsumerError):
    """A topology task failed. If application code raised an exception, it is the ``__cause__``.

    Source: Kafka 3.9 org.apache.kafka.streams.errors.StreamsException.
    """


class RecordRejectedError(StreamsError):
    """The producer or the brokers rejected a record written by a sink."""


class ProducerFencedError(StreamsError):
    """Another producer uses the same transactional id. Source: Kafka 3.9 ProducerFencedException."""


class ProducerFailedError(StreamsError):
    """The producer failed for a reason other than a rejected record, so the production handler is not called."""
