"""The original pickled form of ``ConsumerConfig``, a list of values, as found in old checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

#: Properties in the order of their values in a pickled list. The order must not be changed. Older lists are shorter.
ORDER_OF_LISTS = (
    "group.id",
    "zookeeper.connect",
    "bootstrap.servers",
    "consumer.id",
    "client.id",
    "zookeeper.session.timeout.ms",
    "zookeeper.connection.timeout.ms",
    "zookeeper.sync.time.ms",
    "socket.timeout.ms",
    "socket.receive.buffer.bytes",
    "fetch.message.max.bytes",
    "num.consumer.fetchers",
    "queued.max.message.chunks",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "refresh.leader.backoff.ms",
    "auto.offset.reset",
    "consumer.timeout.ms",
    "isolation.level",
    "check.crcs",
    "corrupt.record.policy",
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "zookeeper.ssl.client.enable",
    "zookeeper.ssl.ca.location",
    "zookeeper.ssl.certificate.location",
    "zookeeper.ssl.key.location",
    "zookeeper.ssl.key.password",
    "zookeeper.ssl.endpoint.identification.algorithm",
    "zookeeper.sasl.mechanism",
    "zookeeper.sasl.username",
    "zookeeper.sasl.password",
    "zookeeper.auth.digest",
    "rebalance.max.retries",
    "rebalance.backoff.ms",
    "partition.assignment.strategy",
    "roundrobin.order",
    "exclude.internal.topics",
    "metadata.max.age.ms",
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "offsets.storage",
    "dual.commit.enabled",
    "offsets.channel.backoff.ms",
    "offsets.channel.socket.timeout.ms",
    "offsets.commit.max.retries",
    "offsets.commit.unchanged",
    "decompressed.batch.max.bytes",
    "fetch.max.bytes",
    "queued.max.bytes",
    "auto.offset.reset.new.partitions",
)

#: Maps (property, former value) to the renamed value.
_RENAMED = {("auto.offset.reset.new.partitions", "as-reset"): "inherit"}


def read_list(values: Sequence[object]) -> dict[str, object]:
    """Convert a pickled list of values to a mapping from property name to value."""
    return {name: _RENAMED.get((name, str(value)), value) for name, value in zip(ORDER_OF_LISTS, values, strict=False)}
