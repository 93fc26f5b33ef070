"""Translates librdkafka's errors, and decides which of them concern a single record.

The errors that concern a record are an allow list: an unknown error must not lead to skipped records.

Source: Kafka 3.9 RecordCollectorImpl.isFatalException and recordSendError; librdkafka 2.16 rd_kafka_resp_err_t.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from zkconsumer.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerUnavailableError,
    ConfigurationError,
    GroupAuthorizationError,
    ProducerFailedError,
    ProducerFencedError,
    RecordRejectedError,
    TopicAuthorizationError,
    UnsupportedBrokerError,
    ZkConsumerError,
)

#: The topic or partition does not exist.
UNKNOWN_TOPIC = {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}
#: A record or a record batch is too large.
TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
#: A broker rejected the content of a record. A broker returns ``INVALID_MSG`` (CORRUPT_MESSAGE) for a record without a
#: key in a compacted topic before Kafka 2.4.
_INVALID = {
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
}
#: Errors that concern a single record or its batch. For all others, the production handler is not called.
REJECTED = UNKNOWN_TOPIC | TOO_LARGE | _INVALID
#: The record was not written because another record in its batch was rejected (KIP-467).
DIFFERENT_RECORD = KafkaError._INVALID_DIFFERENT_RECORD
#: The record was not sent, because an earlier one was rejected.
UNSENT = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}

#: Errors of a transaction after a transaction in which a record batch was rejected: librdkafka does not assign the
#: sequence numbers of the rejected batch again.
SKIPPED_SEQUENCE = {KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID}

_FENCED = {
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.PRODUCER_FENCED,
}
_UNSUPPORTED = {
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError.UNSUPPORTED_VERSION,
}
#: Exception and missing permission, by error code.
_UNAUTHORIZED: dict[int, tuple[type[AuthorizationError], str]] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (TopicAuthorizationError, "WRITE on the topic"),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (GroupAuthorizationError, "READ on the group"),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (AuthorizationError, "IDEMPOTENT_WRITE on the cluster"),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (AuthorizationError, "WRITE on the transactional id"),
    KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (AuthorizationError, "access with the delegation token"),
}
_UNAUTHENTICATED = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.SECURITY_DISABLED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}
#: The brokers did not respond, or could not write at this time.
_UNAVAILABLE = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._FAIL,
    KafkaError._ISR_INSUFF,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._RETRY,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


def to_error(error: KafkaError, what: str) -> ZkConsumerError:
    """Return the exception for a librdkafka error: RecordRejectedError only for errors that concern a record.

    Args:
        error: the librdkafka error.
        what: description of the operation, used in the message.
    """
    code = error.code()
    named = f"{what}: {error.name()} ({code}): {error.str()}"
    if code in REJECTED:
        return RecordRejectedError(_describe_rejection(code, what, named))
    if code in _FENCED:
        return ProducerFencedError(
            f"{what}: another producer uses the transactional id, or a transaction took longer than "
            "transaction.timeout.ms; stop other applications with this application id"
        )
    if code in _UNSUPPORTED:
        return UnsupportedBrokerError(f"{what}: {error.str()}; exactly_once_v2 requires Kafka 2.5 or later")
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigurationError(
            f"{what}: transaction.timeout.ms must be at most the brokers' transaction.max.timeout.ms"
        )
    if code == KafkaError._QUEUE_FULL:
        return ConfigurationError(
            f"{what}: the record is larger than the producer queue; increase queue.buffering.max.kbytes in "
            "QuerySettings.producer"
        )
    if code in _UNAUTHORIZED:
        kind, right = _UNAUTHORIZED[code]
        return kind(f"{named}; grant {right} to the principal of the application")
    if code in _UNAUTHENTICATED:
        return AuthenticationError(f"{named}; check the TLS and SASL settings in the properties")
    if error.retriable() or code in _UNAVAILABLE:
        return BrokerUnavailableError(
            f"{named}; check the brokers (the time limit is delivery.timeout.ms in QuerySettings.producer)"
        )
    return ProducerFailedError(named)


def _describe_rejection(code: int, what: str, named: str) -> str:
    if code in UNKNOWN_TOPIC:
        return f"{what}: the topic or partition does not exist; create it"
    if code in TOO_LARGE:
        return (
            f"{what}: the record is too large; increase max.message.bytes of the topic and message.max.bytes in "
            "QuerySettings.producer"
        )
    return named
