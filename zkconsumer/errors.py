"""The errors that applications handle. The class determines how to handle an error.

Packages define subclasses of them where more is known, such as ``JarsUnavailableError`` of the development cluster.

::

    ZkConsumerError
      ConfigurationError            fix the settings; never retried
      RetriableError                retry after a back-off
        BrokerUnavailableError
        NotLeaderError
        ZooKeeperUnavailableError
        AuthorizationError          the rights to a topic, the group or a znode are missing; they may be granted later
          TopicAuthorizationError
          GroupAuthorizationError
      AuthenticationError           authentication with a broker or ZooKeeper failed; never retried
      OwnershipLostError            another member may own the partition; stop committing
      ConsumerRebalanceFailedError  the first rebalance used up its retries
      RegistrationError             the znode of a member is malformed; the message has path and content
      AssignmentError               the settings of the group's members contradict each other
      MessageStreamsExistError      streams can be created once per connector
      OffsetOutOfRangeError         carries the log start offset and the end offset
      MessageSizeTooLargeError      a record does not fit into one fetch; the message has size, limit and property
      CorruptRecordError            carries the offset of the corrupt batch and the offset after it
      UnsupportedBrokerError        no request version in common with the broker
      ConsumerTimeoutError          no record arrived in time; the stream stays usable
      ClosedError                   the object was closed, or is used after a fork
      TopologyError                 nodes, stores or topics of a topology contradict each other
      StreamsError                  a task failed; names task, node, topic, partition and offset where they are known
        RecordRejectedError         a record was not accepted by the producer or the brokers
        ProducerFencedError         another producer uses the transactional id

Errors of kazoo, kafka-python and the operating system are mapped to these classes in ``zookeeper/connection.py``,
``broker/channel.py`` and ``fetcher/decode.py``.
"""

from __future__ import annotations


class ZkConsumerError(Exception):
    """Base class of all errors of this package."""


class ConfigurationError(ZkConsumerError, ValueError):
    """A setting is missing, malformed or contradicts another one."""


class RetriableError(ZkConsumerError):
    """The operation may succeed if it is retried after a back-off."""


class BrokerUnavailableError(RetriableError):
    """A broker is unreachable, closed the connection, or did not respond in time."""


class NotLeaderError(RetriableError):
    """The broker is not, or no longer, the leader of the partition."""


class ZooKeeperUnavailableError(RetriableError):
    """ZooKeeper is unreachable, or did not respond in time."""


class AuthorizationError(RetriableError):
    """The client lacks the rights for a request. It is retried, because they can be granted while a consumer runs."""


class TopicAuthorizationError(AuthorizationError):
    """A broker returned TOPIC_AUTHORIZATION_FAILED (29)."""


class GroupAuthorizationError(AuthorizationError):
    """A broker returned GROUP_AUTHORIZATION_FAILED (30), or ZooKeeper denies access to the group's znodes."""


class AuthenticationError(ZkConsumerError):
    """Authentication failed on either side of a connection; never retried."""


class OwnershipLostError(ZkConsumerError):
    """The consumer does not own the partition, or the session of its owner znodes has expired or may have expired."""


class ConsumerRebalanceFailedError(ZkConsumerError):
    """The first rebalance did not succeed within its retries."""


class RegistrationError(ZkConsumerError):
    """The registration znode of a group member is malformed."""


class AssignmentError(ZkConsumerError):
    """Partitions cannot be assigned because the settings of the group's members contradict each other."""


class MessageStreamsExistError(ZkConsumerError):
    """The connector has streams already; they can be created only once."""


class OffsetOutOfRangeError(ZkConsumerError):
    """The log of the partition does not contain the offset.

    Attributes:
        first: log start offset, -1 if unknown.
        end: end offset, exclusive; -1 if unknown.
    """

    def __init__(self, message: str, first: int = -1, end: int = -1) -> None:
        super().__init__(message)
        self.first = first
        self.end = end


class MessageSizeTooLargeError(ZkConsumerError):
    """A record is larger than ``fetch.message.max.bytes`` and the broker cannot return it completely."""


class CorruptRecordError(ZkConsumerError):
    """The CRC, the structure, the offset or the decompressed size of a record batch is wrong.

    Attributes:
        offset: the next offset to read, at or before the corrupt batch.
        after: the offset after the corrupt batch; -1 if no intact batch follows, so that its end is unknown.
        entry: bytes of the corrupt batch, empty if its end is unknown.
    """

    def __init__(self, message: str, offset: int = -1, after: int = -1, entry: bytes = b"") -> None:
        super().__init__(message)
        self.offset = offset
        self.after = after
        self.entry = entry


class UnsupportedBrokerError(ZkConsumerError):
    """The broker and this client have no version of a request in common."""


class ConsumerTimeoutError(ZkConsumerError):
    """No record arrived within ``consumer.timeout.ms``; the stream stays usable."""


class ClosedError(ZkConsumerError):
    """The object was closed, or is used in another process after a fork."""


class TopologyError(ZkConsumerError, ValueError):
    """Nodes, stores or topics of a topology contradict each other.

    Source: Kafka 3.9 org.apache.kafka.streams.errors.TopologyException.
    """


class StreamsError(ZkConsumerError):
    """A task of a topology failed. The cause is the error of the application's code, if there is one.

    Source: Kafka 3.9 org.apache.kafka.streams.errors.StreamsException.
    """


class RecordRejectedError(StreamsError):
    """A record that a sink wrote was not accepted by the producer or by the brokers."""


class ProducerFencedError(StreamsError):
    """Another producer uses the same transactional id. Source: Kafka 3.9 ProducerFencedException."""
