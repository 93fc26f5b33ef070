"""Classes of librdkafka's errors."""

from __future__ import annotations

import pytest
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
)
from zkconsumer.spark.streams.producer_errors import to_error

CODES = {name: code for name, code in vars(KafkaError).items() if isinstance(code, int) and name.strip("_").isupper()}

#: All codes that are not ``ProducerFailedError``.
CLASSES: dict[type[Exception], str] = {
    RecordRejectedError: (
        "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_MSG INVALID_RECORD INVALID_TIMESTAMP POLICY_VIOLATION "
        "_UNKNOWN_TOPIC _UNKNOWN_PARTITION UNKNOWN_TOPIC_OR_PART"
    ),
    ProducerFencedError: "_FENCED INVALID_PRODUCER_EPOCH INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED",
    UnsupportedBrokerError: "_UNSUPPORTED_FEATURE UNSUPPORTED_FOR_MESSAGE_FORMAT UNSUPPORTED_VERSION",
    ConfigurationError: "INVALID_TRANSACTION_TIMEOUT _QUEUE_FULL",
    TopicAuthorizationError: "TOPIC_AUTHORIZATION_FAILED",
    GroupAuthorizationError: "GROUP_AUTHORIZATION_FAILED",
    AuthorizationError: (
        "CLUSTER_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED"
    ),
    AuthenticationError: (
        "_AUTHENTICATION _SSL ILLEGAL_SASL_STATE SASL_AUTHENTICATION_FAILED SECURITY_DISABLED "
        "UNSUPPORTED_SASL_MECHANISM"
    ),
    BrokerUnavailableError: (
        "_ALL_BROKERS_DOWN _FAIL _ISR_INSUFF _MSG_TIMED_OUT _RESOLVE _RETRY _TIMED_OUT _TIMED_OUT_QUEUE _TRANSPORT "
        "_WAIT_COORD BROKER_NOT_AVAILABLE CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS "
        "COORDINATOR_NOT_AVAILABLE FENCED_LEADER_EPOCH KAFKA_STORAGE_ERROR LEADER_NOT_AVAILABLE NETWORK_EXCEPTION "
        "NOT_COORDINATOR NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_LEADER_FOR_PARTITION "
        "REPLICA_NOT_AVAILABLE REQUEST_TIMED_OUT THROTTLING_QUOTA_EXCEEDED UNKNOWN_LEADER_EPOCH"
    ),
}
EXPECTED = {name: found for found, names in CLASSES.items() for name in names.split()}


def test_all_expected_codes_exist() -> None:
    assert len(CODES) > 180
    assert not EXPECTED.keys() - CODES.keys()


@pytest.mark.parametrize("name", sorted(CODES))
def test_only_listed_codes_concern_a_record(name: str) -> None:
    code = CODES[name]

    error = to_error(KafkaError(code), "task 0_3")

    assert type(error) is EXPECTED.get(name, ProducerFailedError)
    assert str(error).startswith("task 0_3: ")


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", "WRITE on the topic"),
        ("GROUP_AUTHORIZATION_FAILED", "READ on the group"),
        ("CLUSTER_AUTHORIZATION_FAILED", "IDEMPOTENT_WRITE on the cluster"),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "WRITE on the transactional id"),
    ],
)
def test_missing_permission_is_named(name: str, right: str) -> None:
    assert str(to_error(KafkaError(CODES[name]), "task 0_3, topic 'out'")).endswith(
        f"; grant {right} to the principal of the application"
    )
