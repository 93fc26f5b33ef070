"""Every error that zkconsumer raises; the tree says what to do about it.

::

    ZkConsumerError
      ConfigurationError            fix the settings; never retried
      RetriableError                try again after a back-off
        BrokerUnavailableError
        NotLeaderError
        ZooKeeperUnavailableError
      AuthenticationError           a broker or ZooKeeper does not trust us, or we do not trust it
      OwnershipLostError            another member may own it now; stop committing
      ConsumerRebalanceFailedError  the tries of the first rebalance are used up
      RegistrationError             a member's znode cannot be read; path and content in the text
      AssignmentError               the group's members cannot share partitions as they are configured
      MessageStreamsExistError      streams are created once per connector
      OffsetOutOfRangeError         the log does not have the offset (any more)
      MessageSizeTooLargeError      a record does not fit in one fetch
      CorruptRecordError            CRC or structure is wrong; offset and byte position in the text
      UnsupportedBrokerError        the broker shares no request version with us
      ConsumerTimeoutError          nothing to read; the stream stays usable
      ClosedError                   we closed it

Errors of kazoo, kafka-python and the operating system are mapped to these where they enter:
``zookeeper.py``, ``broker/channel.py`` and ``fetcher/decode.py``.
"""

from __future__ import annotations


class ZkConsumerError(Exception):
    """The root of all errors of this package."""


class ConfigurationError(ZkConsumerError, ValueError):
    """A setting is missing, malformed or contradicts another one."""


class RetriableError(ZkConsumerError):
    """Trying again after a back-off may succeed."""


class BrokerUnavailableError(RetriableError):
    """A broker cannot be reached, closed the connection, or did not answer in time."""


class NotLeaderError(RetriableError):
    """The broker does not lead the partition (any more)."""


class ZooKeeperUnavailableError(RetriableError):
    """The ensemble cannot be reached, or did not answer in time."""


class AuthenticationError(ZkConsumerError):
    """One side of a connection does not trust the other; never retried."""


class OwnershipLostError(ZkConsumerError):
    """The session that held the owner znodes has ended, or may have."""


class ConsumerRebalanceFailedError(ZkConsumerError):
    """The first rebalance did not succeed within its tries."""


class RegistrationError(ZkConsumerError):
    """The registration znode of a member of the group cannot be read."""


class AssignmentError(ZkConsumerError):
    """The members of the group cannot share its partitions: their settings contradict each other."""


class MessageStreamsExistError(ZkConsumerError):
    """The streams of a connector were created before; that is possible once."""


class OffsetOutOfRangeError(ZkConsumerError):
    """The log of the partition does not hold the offset; ``first`` and ``end`` are what it holds, -1 if not known."""

    def __init__(self, message: str, first: int = -1, end: int = -1) -> None:
        super().__init__(message)
        self.first = first
        self.end = end


class MessageSizeTooLargeError(ZkConsumerError):
    """A record is larger than ``fetch.message.max.bytes`` and the broker cannot send it whole."""


class CorruptRecordError(ZkConsumerError):
    """The CRC or the structure of a record batch is wrong.

    ``offset`` is where reading goes on; ``after`` is the offset behind the damaged batch, -1 where that cannot be told;
    ``entry`` are the bytes of the batch, where its end is known.
    """

    def __init__(self, message: str, offset: int = -1, after: int = -1, entry: bytes = b"") -> None:
        super().__init__(message)
        self.offset = offset
        self.after = after
        self.entry = entry


class UnsupportedBrokerError(ZkConsumerError):
    """The broker and this client have no version of a request in common."""


class ConsumerTimeoutError(ZkConsumerError):
    """No record arrived within ``consumer.timeout.ms``; the stream can be read on."""


class ClosedError(ZkConsumerError):
    """The object was closed by its owner."""
