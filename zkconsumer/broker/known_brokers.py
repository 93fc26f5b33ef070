"""KnownBrokers: remembers the brokers named by the last Metadata response.

The configured or registered brokers are needed for the first request only. Later, each of them may be removed from the
cluster. As in the Java clients, a response replaces all brokers of the previous response.

Source: Kafka 3.9 org.apache.kafka.clients.Metadata.update.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from zkconsumer.message import Endpoint


class KnownBrokers:
    """The brokers named by the last Metadata response; empty before the first. May be used from any thread."""

    def __init__(self) -> None:
        self._named: tuple[Endpoint, ...] = ()  # replaced as a whole

    def record(self, endpoints: Iterable[Endpoint]) -> None:
        """Record the brokers of a response; a response without brokers is ignored."""
        self._named = tuple(endpoints) or self._named

    def before(self, configured: Sequence[Endpoint]) -> list[Endpoint]:
        """Return the named brokers, followed by those configured brokers that are not named; each group is shuffled.

        The configured brokers are the last resort. They may be addresses from which no broker is advertised, such as
        that of a load balancer, or the only reachable addresses.
        """
        return _distinct([*_shuffle(self._named), *_shuffle(configured)])

    def added_to(self, listed: Sequence[Endpoint]) -> list[Endpoint]:
        """Return the listed brokers, followed by those named brokers that are not listed.

        Listed brokers that are also named are returned first, in random order; the other listed brokers keep their
        order. The list takes precedence because it may be more recent, such as the brokers registered in ZooKeeper.
        """
        named, addresses = {broker[:2] for broker in self._named}, {broker[:2] for broker in listed}
        live = _shuffle([broker for broker in listed if broker[:2] in named])
        return _distinct([*live, *listed, *_shuffle([one for one in self._named if one[:2] not in addresses])])


def brokers_of(response: Any, contacted: Sequence[Endpoint]) -> dict[int, Endpoint]:
    """Return the brokers named by a Metadata response, by id.

    Args:
        contacted: brokers whose support of ApiVersions requests is known; the response does not contain it.
    """
    # If one broker supports ApiVersions, all brokers do, except during a rolling upgrade from 0.9.
    has_api_versions = True if response.API_VERSION > 0 else None
    return {
        int(one.node_id): Endpoint(one.host, one.port, has_api_versions).with_versions_from(contacted)
        for one in response.brokers
    }


def _shuffle(brokers: Sequence[Endpoint]) -> list[Endpoint]:
    return random.sample(brokers, len(brokers))


def _distinct(brokers: Iterable[Endpoint]) -> list[Endpoint]:
    """Return the first of all brokers with the same address."""
    found: dict[tuple[str, int], Endpoint] = {}
    for broker in brokers:
        found.setdefault((broker.host, broker.port), broker)
    return list(found.values())
