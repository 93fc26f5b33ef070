"""Suggestions for unknown names of properties, Spark options and command-line options.

Source: Kafka 0.7 kafka.consumer.ConsumerConfig; Kafka 3.9 ConsumerConfig, SslConfigs and SaslConfigs; librdkafka.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

#: Minimum similarity of a suggestion, from 0 to 1; high enough to exclude unrelated properties of other clients.
_MIN_SIMILARITY = 0.8


@dataclass(frozen=True, slots=True)
class Counterpart:
    """The replacement for a property of another client.

    Attributes:
        names: properties to set instead; empty if there is no counterpart.
        note: remark about the value, such as a different unit.
    """

    names: tuple[str, ...] = ()
    note: str = ""

    def hint(self, quote: Callable[[str], str]) -> str:
        """Return the remedy, to be appended to an error message after a semicolon."""
        if not self.names:
            return "it has no counterpart; remove it"
        verb = "its counterparts are" if len(self.names) > 1 else "its counterpart is"
        return f"{verb} {' and '.join(map(quote, self.names))}" + (f" ({self.note})" if self.note else "")


NO_COUNTERPART = Counterpart()


def _to(*names: str, note: str = "") -> Counterpart:
    return Counterpart(names, note)


_KAFKA_0_7 = {
    "groupid": _to("group.id"),
    "consumerid": _to("consumer.id"),
    "zk.connect": _to("zookeeper.connect"),
    "zk.sessiontimeout.ms": _to("zookeeper.session.timeout.ms"),
    "zk.connectiontimeout.ms": _to("zookeeper.connection.timeout.ms"),
    "zk.synctime.ms": _to("zookeeper.sync.time.ms"),
    "socket.buffersize": _to("socket.receive.buffer.bytes"),
    "fetch.size": _to("fetch.message.max.bytes"),
    "queuedchunks.max": _to("queued.max.message.chunks"),
    "autocommit.enable": _to("auto.commit.enable"),
    "autocommit.interval.ms": _to("auto.commit.interval.ms"),
    "autooffset.reset": _to("auto.offset.reset"),
    "rebalance.retries.max": _to("rebalance.max.retries"),
    "fetcher.backoff.ms": NO_COUNTERPART,
    "backoff.increment.ms": NO_COUNTERPART,
    "shallowiterator.enable": NO_COUNTERPART,
}

_NEW_CONSUMER = {
    "enable.auto.commit": _to("auto.commit.enable"),
    "max.partition.fetch.bytes": _to("fetch.message.max.bytes"),
    "fetch.max.wait.ms": _to("fetch.wait.max.ms"),
    "request.timeout.ms": _to("socket.timeout.ms"),
    "socket.connection.setup.timeout.ms": _to("socket.timeout.ms"),
    "receive.buffer.bytes": _to("socket.receive.buffer.bytes"),
    "retry.backoff.ms": _to("refresh.leader.backoff.ms"),
    "session.timeout.ms": _to("zookeeper.session.timeout.ms"),
    "key.deserializer": _to("key_decoder", note="an argument of create_message_streams"),
    "value.deserializer": _to("value_decoder", note="an argument of create_message_streams"),
    **dict.fromkeys(
        (
            "allow.auto.create.topics",
            "auto.include.jmx.reporter",
            "client.dns.lookup",
            "client.rack",
            "connections.max.idle.ms",
            "default.api.timeout.ms",
            "enable.metrics.push",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "heartbeat.interval.ms",
            "interceptor.classes",
            "max.poll.interval.ms",
            "max.poll.records",
            "metadata.recovery.strategy",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
            "reconnect.backoff.max.ms",
            "reconnect.backoff.ms",
            "retry.backoff.max.ms",
            "security.providers",
            "send.buffer.bytes",
            "socket.connection.setup.timeout.max.ms",
        ),
        NO_COUNTERPART,
    ),
}

_PEM = "PEM instead of a Java keystore"

_JAVA_SECURITY = {
    "ssl.truststore.location": _to("ssl.ca.location", note=_PEM),
    "ssl.truststore.certificates": _to("ssl.ca.location", note="the path of a file"),
    "ssl.keystore.location": _to("ssl.certificate.location", "ssl.key.location", note=_PEM),
    "ssl.keystore.certificate.chain": _to("ssl.certificate.location", note="the path of a file"),
    "ssl.keystore.key": _to("ssl.key.location", note="the path of a file"),
    "ssl.keystore.password": _to("ssl.key.password"),
    "sasl.jaas.config": _to("sasl.username", "sasl.password"),
    "zookeeper.ssl.truststore.location": _to("zookeeper.ssl.ca.location", note=_PEM),
    "zookeeper.ssl.keystore.location": _to(
        "zookeeper.ssl.certificate.location", "zookeeper.ssl.key.location", note=_PEM
    ),
    "zookeeper.ssl.keystore.password": _to("zookeeper.ssl.key.password"),
    **dict.fromkeys(
        (
            "sasl.client.callback.handler.class",
            "sasl.kerberos.*",
            "sasl.login.*",
            "sasl.oauthbearer.*",
            "ssl.cipher.suites",
            "ssl.enabled.protocols",
            "ssl.engine.factory.class",
            "ssl.keymanager.algorithm",
            "ssl.keystore.type",
            "ssl.protocol",
            "ssl.provider",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
            "ssl.truststore.password",
            "ssl.truststore.type",
            "zookeeper.clientCnxnSocket",
            "zookeeper.set.acl",
            "zookeeper.ssl.cipher.suites",
            "zookeeper.ssl.enabled.protocols",
            "zookeeper.ssl.keystore.type",
            "zookeeper.ssl.protocol",
            "zookeeper.ssl.truststore.password",
            "zookeeper.ssl.truststore.type",
        ),
        NO_COUNTERPART,
    ),
}

_LIBRDKAFKA = {
    "metadata.broker.list": _to("bootstrap.servers"),
    "fetch.error.backoff.ms": _to("refresh.leader.backoff.ms"),
    "queued.max.messages.kbytes": _to("queued.max.bytes", note="in bytes"),
    "topic.metadata.refresh.interval.ms": _to("metadata.max.age.ms"),
    **dict.fromkeys(
        (
            "api.version.request",
            "broker.address.family",
            "broker.version.fallback",
            "enable.auto.offset.store",
            "enable.partition.eof",
            "enable.ssl.certificate.verification",
            "log_level",
            "message.max.bytes",
            "queued.min.messages",
            "receive.message.max.bytes",
            "socket.keepalive.enable",
            "statistics.interval.ms",
        ),
        NO_COUNTERPART,
    ),
}

#: Properties of other clients, by client.
BY_CLIENT: Mapping[str, Mapping[str, Counterpart]] = {
    "Kafka 0.7": _KAFKA_0_7,
    "Kafka's new consumer": _NEW_CONSUMER,
    "TLS and SASL in Java": _JAVA_SECURITY,
    "librdkafka": _LIBRDKAFKA,
}

#: Properties of other clients, by lowercase name. A name that ends with ``*`` is a prefix.
FOREIGN_PROPERTIES: Mapping[str, Counterpart] = {
    name.lower(): counterpart for properties in BY_CLIENT.values() for name, counterpart in properties.items()
}


def suggest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to ``name``, or None if none is similar enough.

    Case is ignored, and ``_`` and ``-`` are treated as ``.``. A prefix that ends at a dot is completed if only one
    known name starts with it.
    """
    form, by_form = _normalize(name), {_normalize(candidate): candidate for candidate in known}
    found = difflib.get_close_matches(form, by_form, 1, _MIN_SIMILARITY)
    completed = [candidate for candidate in by_form if candidate.startswith(f"{form}.")]
    if not found and len(completed) == 1:
        found = completed
    return by_form[found[0]] if found else None


def hint(
    name: str, known: Iterable[str], foreign: Mapping[str, Counterpart], *, quote: Callable[[str], str] = repr
) -> str:
    """Return the remedy for an unknown name, to be appended to an error message; empty if there is no suggestion.

    Args:
        known: valid names.
        foreign: counterparts of names that other programs use, by lowercase name.
        quote: function that quotes a name.
    """
    candidates = list(known)
    lower = name.lower()
    if _normalize(name) not in map(_normalize, candidates):
        for key, counterpart in foreign.items():
            if lower == key or (key.endswith("*") and lower.startswith(key[:-1])):
                return f"; {counterpart.hint(quote)}"
    meant = suggest(name, candidates)
    if meant:
        return f"; did you mean {quote(meant)}?"
    other = suggest(name, (key for key in foreign if not key.endswith("*")))
    return f"; did you mean {quote(other)} ({foreign[other].hint(quote)})?" if other else ""


def _normalize(name: str) -> str:
    return name.lower().replace("_", ".").replace("-", ".")
