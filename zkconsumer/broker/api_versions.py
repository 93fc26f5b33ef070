"""Negotiation of request versions with brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.metadata import ApiVersionsRequest

from zkconsumer.broker.error_codes import error_name
from zkconsumer.errors import UnsupportedBrokerError
from zkconsumer.message import Endpoint
from zkconsumer.version import __version__

#: Request versions used with brokers that do not support ApiVersions. Kafka 0.9 supports all request versions of 0.8.2.
BEFORE_API_VERSIONS = BrokerVersionData(broker_version=(0, 8, 2))

_UNSUPPORTED_VERSION = 35


def fetch_versions(request: Callable[[Any], Any], endpoint: Endpoint) -> BrokerVersionData:
    """Return the request versions that a broker supports.

    Args:
        request: function that sends a request to the broker and returns the decoded response.

    Raises:
        UnsupportedBrokerError: the broker rejected the ApiVersions request.
    """
    version = ApiVersionsRequest.max_version
    for _ in range(2):
        response = request(
            ApiVersionsRequest(version=version, client_software_name="zkconsumer", client_software_version=__version__)
        )
        if response.error_code == 0 and response.api_keys:
            return BrokerVersionData(
                api_versions={key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
            )
        if response.error_code != _UNSUPPORTED_VERSION:
            break
        # A response with this error has the layout of version 0. As of Kafka 2.4, it contains the newest ApiVersions
        # version that the broker supports.
        keys = {key.api_key: key.max_version for key in response.api_keys or ()}
        version = max(0, min(keys.get(ApiVersionsRequest.API_KEY, 0), ApiVersionsRequest.max_version))
    raise UnsupportedBrokerError(
        f"broker {endpoint} rejected the ApiVersions request: {error_name(response.error_code)}"
    )


def choose_version(request: Any, versions: BrokerVersionData, endpoint: Endpoint) -> int:
    """Return the newest version of ``request`` that both the broker and the request's version range allow.

    Raises:
        UnsupportedBrokerError: the broker and this client have no request version in common.
    """
    try:
        return int(versions.api_version(request))
    except (kafka_errors.IncompatibleBrokerVersion, kafka_errors.UnsupportedVersionError) as error:
        raise UnsupportedBrokerError(
            f"broker {endpoint} and this client have no {type(request).__name__} version in common: {error}"
        ) from error
