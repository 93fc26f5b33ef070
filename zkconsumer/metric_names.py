"""The table of metrics: the MBeans of a consumer and of a Spark query, with kind, tags and meaning.

``docs/metrics.rst`` is generated from this table, and ``tests/integration/test_metrics.py`` compares it with the
metrics of a running consumer.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.config.tables import table_to_rst

#: Attributes by kind of metric.
ATTRIBUTES = {
    "gauge": "``Value``",
    "meter": "``Count``, ``MeanRate``, ``OneMinuteRate``",
    "histogram": "``Count``, ``Min``, ``Max``, ``Mean``, ``50thPercentile``, ``75thPercentile``, ``95thPercentile``, "
    "``99thPercentile``",
    "timer": "those of a histogram, in milliseconds, and ``MeanRate``, ``OneMinuteRate``",
}


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One row of the table.

    Attributes:
        bean: group, type and name, such as ``kafka.consumer:type=ConsumerFetcherManager,name=MaxLag``.
        kind: a key of ``ATTRIBUTES``.
        tags: names of the tags; a metric exists without the tags in brackets, too.
        is_original: whether the consumer of Kafka 1.1 has the same MBean.
    """

    bean: str
    kind: str
    tags: str
    meaning: str
    is_original: bool = True


_CONNECTOR = "kafka.consumer:type=ZookeeperConsumerConnector,name="
_MANAGER = "kafka.consumer:type=ConsumerFetcherManager,name="
_TOPICS = "kafka.consumer:type=ConsumerTopicMetrics,name="
_FETCHES = "kafka.consumer:type=FetchRequestAndResponseMetrics,name="
_QUERY = "zkconsumer.spark:type=StreamingQuery,name="

CONSUMER_METRICS = (
    MetricRow(f"{_CONNECTOR}FetchQueueSize", "gauge", "clientId, topic, threadId", "Chunks in the queues of a stream."),
    MetricRow(
        f"{_CONNECTOR}Health",
        "gauge",
        "clientId",
        "0 healthy, 1 rebalancing, 2 stalled, 3 disconnected, 4 failed.",
        is_original=False,
    ),
    MetricRow(f"{_CONNECTOR}KafkaCommitsPerSec", "meter", "clientId", "Offsets committed to Kafka."),
    MetricRow(f"{_CONNECTOR}OwnedPartitionsCount", "gauge", "clientId, groupId, [topic]", "Owned partitions."),
    MetricRow(f"{_CONNECTOR}RebalanceRateAndTime", "timer", "clientId", "Attempts to rebalance."),
    MetricRow(
        f"{_CONNECTOR}UnbalancedSeconds",
        "gauge",
        "clientId",
        "Seconds since the first failed rebalance, or since the failure of the member; 0 if it is balanced.",
        is_original=False,
    ),
    MetricRow(f"{_CONNECTOR}ZooKeeperCommitsPerSec", "meter", "clientId", "Offsets committed to ZooKeeper."),
    MetricRow(f"{_MANAGER}MaxLag", "gauge", "clientId", "Highest lag of an owned partition, in messages."),
    MetricRow(f"{_MANAGER}MinFetchRate", "gauge", "clientId", "Fetch requests per second of the slowest fetcher."),
    MetricRow(f"{_TOPICS}BytesPerSec", "meter", "clientId, [topic]", "Bytes that were added to the queues."),
    MetricRow(f"{_TOPICS}MessagesPerSec", "meter", "clientId, [topic]", "Messages that the application has consumed."),
    MetricRow(
        f"{_TOPICS}SkippedOffsetsPerSec",
        "meter",
        "clientId, [topic]",
        "Offsets of corrupt batches that were skipped (``corrupt.record.policy=skip``).",
        is_original=False,
    ),
    MetricRow(f"{_FETCHES}FetchRequestRateAndTimeMs", "timer", "clientId, [brokerHost, brokerPort]", "Fetch requests."),
    MetricRow(
        f"{_FETCHES}FetchRequestThrottleRateAndTimeMs",
        "timer",
        "clientId, [brokerHost, brokerPort]",
        "Times for which brokers have throttled fetch requests.",
    ),
    MetricRow(
        f"{_FETCHES}FetchResponseSize", "histogram", "clientId, [brokerHost, brokerPort]", "Bytes of a fetch response."
    ),
    MetricRow(
        "kafka.server:type=FetcherLagMetrics,name=ConsumerLag",
        "gauge",
        "clientId, topic, partition",
        "Lag of a partition, in messages.",
    ),
    MetricRow(
        "kafka.server:type=FetcherStats,name=BytesPerSec",
        "meter",
        "clientId, brokerHost, brokerPort",
        "Bytes received.",
    ),
    MetricRow(
        "kafka.server:type=FetcherStats,name=RequestsPerSec",
        "meter",
        "clientId, brokerHost, brokerPort",
        "Fetch requests.",
    ),
)

QUERY_METRICS = tuple(
    MetricRow(f"{_QUERY}{name}", "gauge", tags, meaning, is_original=False)
    for name, tags, meaning in (
        ("AvgOffsetsBehindLatest", "query", "Lag per partition, on average."),
        ("BytesPerSecond", "query", "Bytes per second, estimated from a sample of records."),
        ("CommitAgeSeconds", "query", "Seconds since the last commit."),
        ("Commits", "query", "Commits since the start."),
        ("CommitsFailed", "query", "Number of commits that failed since the start."),
        ("Health", "query", "As for a consumer."),
        ("InputRowsPerSecond", "query", "Rows per second that were produced to the topics."),
        ("Lag", "query", "Sum of the lags of all partitions, in offsets."),
        ("MaxOffsetsBehindLatest", "query", "Highest lag of a partition."),
        ("MinOffsetsBehindLatest", "query", "Lowest lag of a partition."),
        ("OwnedPartitions", "query", "Owned partitions."),
        ("ProcessedRowsPerSecond", "query", "Rows per second that the query has processed."),
        ("Rebalances", "query", "Rebalances since the start."),
        ("RecordsLost", "query, [topic, partition]", "Offsets of deleted records that were skipped."),
        ("RecordsSkipped", "query, [topic, partition]", "Offsets of corrupt records that were skipped."),
        ("RereadRecords", "query", "Records that another member has read, too."),
    )
)


def to_rst(rows: tuple[MetricRow, ...]) -> str:
    """Render a table in reStructuredText."""
    cells = [
        (f"``{row.bean}``", row.kind, row.tags, row.meaning + ("" if row.is_original else " Not in the JVM."))
        for row in rows
    ]
    return table_to_rst(("MBean", "Kind", "Tags", "Meaning"), cells)
