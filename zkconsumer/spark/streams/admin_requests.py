"""Requests of librdkafka's admin client about the group of an application."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from zkconsumer.errors import BrokerUnavailableError, GroupAuthorizationError, StreamsError

#: Maximum seconds for a request.
TIMEOUT_S = 30.0


def wait_for_error(request: Future[Any], action: str) -> Any:
    """Return the ``KafkaError`` of an admin request, or None if the request succeeded.

    The error is not raised, because its traceback would keep the client and its connections until the next garbage
    collection.

    Args:
        request: the request.
        action: description of the request, used in the error message.

    Raises:
        BrokerUnavailableError: the request timed out.
    """
    try:
        error = request.exception(TIMEOUT_S + 5)
    except TimeoutError:
        raise BrokerUnavailableError(f"{action} timed out after {TIMEOUT_S + 5:g} s") from None
    return None if error is None else error.args[0]


def delete_group(client: Mapping[str, Any], group: str) -> bool:
    """Delete a group from Kafka; return whether it existed.

    Args:
        client: librdkafka connection settings.
        group: name of the group.

    Raises:
        StreamsError: the group has members.
        GroupAuthorizationError: the client is not authorized to delete the group.
        BrokerUnavailableError: the brokers did not respond.
    """
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(dict(client))  # without this reference, the client's thread would end
    [request] = admin.delete_consumer_groups([group], request_timeout=TIMEOUT_S).values()
    error = wait_for_error(request, f"deletion of group {group!r}")
    if error is None:
        return True
    if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
        return False
    if error.code() == KafkaError.NON_EMPTY_GROUP:
        raise StreamsError(f"group {group!r} is used by consumers in Kafka; stop them first")
    text = f"group {group!r} was not deleted: {error.name()} ({error.code()}): {error.str()}"
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        raise GroupAuthorizationError(text)
    raise BrokerUnavailableError(text)
