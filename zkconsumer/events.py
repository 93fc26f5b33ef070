"""The table of log events: the names that the library logs, with level, logger and meaning.

Event names are constants, so that log queries and alerts can rely on them. ``docs/log-events.rst`` is generated from
this table, and ``tests/unit/test_events.py`` compares it with the calls in the code.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.config.tables import table_to_rst


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One row of the table.

    Attributes:
        name: value of the key ``event``.
        levels: levels at which it is logged.
        logger: names of the loggers, separated by commas.
        meaning: one or two sentences.
    """

    name: str
    levels: tuple[str, ...]
    logger: str
    meaning: str


#: Keys of events with their meaning. The same thing has the same key in all events.
KEYS = {
    "attempt": "number of the attempt, starting at 1",
    "auto_offset_reset": "value of auto.offset.reset",
    "batch_time_ms": "time of a DStream batch, in milliseconds since the epoch",
    "committed_offset": "offset that is committed for the group",
    "consumer_id": "consumer id of the member",
    "endpoint": "host and port of a server, or a list of them",
    "error": "text of the error",
    "fetch_size": "bytes of the next fetch of the partition",
    "group": "group.id",
    "horizon_ms": "upper limit of event time in milliseconds since the epoch",
    "idle": "partitions without new records",
    "key": "key of a message",
    "kind": "kind of a ZooKeeper event",
    "members": "consumer ids",
    "membership": "option membership: group or none",
    "method": "method of the rebalance listener",
    "next_offset": "offset at which reading resumes",
    "node": "node of a topology",
    "offset": "offset of a record",
    "offsets": "offsets by partition",
    "owned": "number of owned partitions",
    "partition": "partition number",
    "partitions": "partitions as topic-number",
    "path": "path of a znode, or of a Python interpreter",
    "property": "name of a property",
    "query": "name or id of a streaming query",
    "reason": "reason in words",
    "records": "number of records",
    "remedy": "what to do",
    "session_id": "ZooKeeper session id, hexadecimal",
    "store": "state store",
    "task": "task of a topology, as sub-topology_partition",
    "timeout_s": "timeout in seconds",
    "timestamp": "timestamp of a message",
    "topic": "topic name",
    "topics": "topic names",
    "value": "value of a property or message",
}

EVENTS = (
    LogEvent(
        "alignment_disabled",
        ("warning",),
        "zkconsumer.spark",
        "Event-time alignment was switched off because a record has no timestamp.",
    ),
    LogEvent(
        "assignment_strategy_mismatch",
        ("error",),
        "zkconsumer.rebalance",
        "The owner znodes show that other consumers of the group use another assignment strategy.",
    ),
    LogEvent(
        "auto_commit_failed",
        ("warning", "error"),
        "zkconsumer.rebalance",
        "The periodic commit failed; the next one includes its offsets.",
    ),
    LogEvent(
        "batch_completion_failed",
        ("warning",),
        "zkconsumer.spark",
        "Committing the offsets of a completed batch of a DStream, or updating back-pressure, failed.",
    ),
    LogEvent(
        "batch_failed",
        ("error",),
        "zkconsumer.spark",
        "A batch of a DStream failed or was not run. A stream of createStream reads no further records until the "
        "application is restarted.",
    ),
    LogEvent(
        "batch_planning_failed",
        ("warning",),
        "zkconsumer.spark",
        "The next batch could not be planned, for example because ZooKeeper or the brokers are unreachable; planning "
        "is retried for unavailable.timeout.ms.",
    ),
    LogEvent(
        "broker_call_abandoned",
        ("warning",),
        "zkconsumer.rebalance",
        "The consumer was shut down while a call waited for a broker, and the call did not return in time.",
    ),
    LogEvent(
        "brokers_not_found",
        ("warning",),
        "zkconsumer.spark",
        "The list of brokers could not be read; tasks use the brokers that are already known.",
    ),
    LogEvent(
        "brokers_skipped",
        ("warning",),
        "zkconsumer.cluster",
        "Broker registrations in ZooKeeper are invalid or have no listener for security.protocol; these "
        "brokers are not used.",
    ),
    LogEvent(
        "committed_offset_lowered",
        ("warning",),
        "zkconsumer.offsets",
        "A commit replaces a committed offset by a lower one, because the application or an offset reset allows it.",
    ),
    LogEvent(
        "committed_offset_missing",
        ("warning",),
        "zkconsumer.offsets",
        "The group has no committed offset for a partition whose records the consumer has delivered up to this offset: "
        "it was never committed, or was deleted externally. If this is found when the partition is claimed, "
        "auto.offset.reset applies, so records may be skipped or delivered again. If it is found by a commit, the "
        "commit stores the new offset.",
    ),
    LogEvent(
        "consumer_registered",
        ("info",),
        "zkconsumer.rebalance",
        "The consumer has registered in its group.",
    ),
    LogEvent(
        "corrupt_records_skipped",
        ("error",),
        "zkconsumer.stream, zkconsumer.spark",
        "A corrupt batch is skipped because corrupt.record.policy is skip.",
    ),
    LogEvent(
        "driver_listener_unreachable",
        ("warning",),
        "zkconsumer.spark",
        "The planning process has no connection to the driver listener, so it learns of finished batches at the next "
        "trigger.",
    ),
    LogEvent(
        "driver_message_failed",
        ("error",),
        "zkconsumer.spark",
        "The planning process could not handle a message of the driver listener; it handles later ones if they can be "
        "read.",
    ),
    LogEvent(
        "duplicate_query_detected",
        ("warning",),
        "zkconsumer.spark",
        "Another query of the same Spark application is a member of the group, so the two share the partitions.",
    ),
    LogEvent(
        "end_of_stream_reached",
        ("info",),
        "zkconsumer.spark",
        "The decoder of a query has reached the end of the stream; the query is stopped.",
    ),
    LogEvent(
        "end_offset_decreased",
        ("warning",),
        "zkconsumer.spark",
        "The end offset of a log is lower than the next offset to read; after unavailable.timeout.ms this counts as "
        "data loss.",
    ),
    LogEvent(
        "event_time_failed",
        ("warning",),
        "zkconsumer.spark",
        "The event_time method of the decoder raised an exception; the record counts as a record without a time.",
    ),
    LogEvent(
        "event_time_held_back",
        ("info",),
        "zkconsumer.spark",
        "A partition with earlier event times holds back the other partitions.",
    ),
    LogEvent(
        "fetch_failed",
        ("warning",),
        "zkconsumer.fetcher",
        "A fetch request failed with a retriable error; the leaders of its partitions are looked up again.",
    ),
    LogEvent(
        "fetcher_failed",
        ("error",),
        "zkconsumer.fetcher",
        "A fetcher thread terminated after an unexpected error; its partitions are assigned to a new one.",
    ),
    LogEvent(
        "health_changed",
        ("info", "warning"),
        "zkconsumer.health",
        "The health of a consumer has changed; the event has its state, and a code and a message for each reason.",
    ),
    LogEvent(
        "health_check_failed",
        ("error",),
        "zkconsumer.health",
        "An unexpected error while the health of a consumer was determined; the check is repeated.",
    ),
    LogEvent(
        "health_listener_failed",
        ("error",),
        "zkconsumer.health",
        "The application's health listener has raised an exception.",
    ),
    LogEvent(
        "invalid_offset_overwritten",
        ("warning",),
        "zkconsumer.offsets",
        "An offset znode does not contain an offset; the next commit overwrites it.",
    ),
    LogEvent(
        "java_home_ignored",
        ("warning",),
        "zkconsumer.devcluster",
        "JAVA_HOME does not name a Java runtime of version 17 or later; the development cluster uses another one.",
    ),
    LogEvent(
        "leader_finder_failed",
        ("error",),
        "zkconsumer.leader_finder",
        "Looking up leaders failed with an unexpected error; it is retried.",
    ),
    LogEvent(
        "leader_lookup_failed",
        ("error",),
        "zkconsumer.leader_finder",
        "Looking up leaders failed with an error that is not retriable, such as failed authentication.",
    ),
    LogEvent(
        "leaders_missing",
        ("warning",),
        "zkconsumer.leader_finder",
        "Partitions have no leader, or access to their topic is denied; logged once for each error code.",
    ),
    LogEvent(
        "leaders_not_found",
        ("warning",),
        "zkconsumer.leader_finder, zkconsumer.spark",
        "The leaders of partitions could not be looked up. The leader finder retries; the tasks of a Spark "
        "batch look them up.",
    ),
    LogEvent(
        "lease_renewal_failed",
        ("error",),
        "zkconsumer.zookeeper",
        "An unexpected error in the thread that renews the session lease; it continues.",
    ),
    LogEvent(
        "leave_failed",
        ("warning",),
        "zkconsumer.rebalance",
        "The consumer could not leave the group cleanly; ZooKeeper deletes its znodes when the session ends.",
    ),
    LogEvent(
        "leave_retried",
        ("info",),
        "zkconsumer.rebalance",
        "Releasing the partitions at shutdown failed and is retried.",
    ),
    LogEvent(
        "leave_timed_out",
        ("warning",),
        "zkconsumer.rebalance",
        "The consumer did not leave the group in time.",
    ),
    LogEvent(
        "member_thread_failed",
        ("error",),
        "zkconsumer.rebalance",
        "The thread of the group member terminated with an error, which the streams raise.",
    ),
    LogEvent(
        "message_consumed",
        ("info",),
        "zkconsumer.console",
        "The LoggingMessageFormatter of the console tools printed a message.",
    ),
    LogEvent(
        "offset_commit_failed",
        ("warning", "error"),
        "zkconsumer.spark",
        "The offsets of a finished batch could not be committed; the commit is retried. The level is error, "
        "with a traceback, if the reason is unexpected.",
    ),
    LogEvent(
        "offset_commit_rejected",
        ("error",),
        "zkconsumer.rebalance",
        "Offsets of revoked partitions could not be committed and were discarded; the next owners read records again.",
    ),
    LogEvent(
        "offset_commit_skipped",
        ("warning",),
        "zkconsumer.offsets",
        "An offset was not committed because it is lower than the committed offset.",
    ),
    LogEvent(
        "offset_lookup_failed",
        ("warning",),
        "zkconsumer.fetcher",
        "The broker returned no offset for auto.offset.reset; the leader of the partition is looked up again.",
    ),
    LogEvent(
        "offset_of_deleted_topic_skipped",
        ("warning",),
        "zkconsumer.offsets",
        "An offset was not committed, because its topic was deleted and created again since the partition was claimed.",
    ),
    LogEvent(
        "offset_out_of_range",
        ("warning",),
        "zkconsumer.fetcher",
        "The log does not contain the offset to fetch; the offset is reset according to auto.offset.reset.",
    ),
    LogEvent(
        "offset_reset",
        ("info",),
        "zkconsumer.fetcher",
        "Fetching starts at the offset that auto.offset.reset selects.",
    ),
    LogEvent(
        "offsets_committed",
        ("info",),
        "zkconsumer.spark",
        "The driver has committed offsets of a completed batch that the planning process had not committed.",
    ),
    LogEvent(
        "owner_znodes_deleted",
        ("warning",),
        "zkconsumer.rebalance",
        "Owner znodes of this consumer were deleted externally; their partitions are claimed again.",
    ),
    LogEvent(
        "partition_fetch_failed",
        ("info", "warning"),
        "zkconsumer.fetcher",
        "The broker returned an error code for one partition; its leader is looked up again. Logged once until the "
        "partition is fetched again. The level is warning if access to the topic is denied.",
    ),
    LogEvent(
        "partitions_assigned",
        ("info",),
        "zkconsumer.rebalance",
        "Partitions were claimed for this consumer and are fetched from now on.",
    ),
    LogEvent(
        "partitions_available",
        ("info",),
        "zkconsumer.spark",
        "The leaders of unavailable partitions respond again; the next batches contain them.",
    ),
    LogEvent(
        "partitions_not_found",
        ("warning",),
        "zkconsumer.spark",
        "With membership=none the partitions could not be listed; listing is retried.",
    ),
    LogEvent(
        "partitions_released_early",
        ("warning",),
        "zkconsumer.spark",
        "Partitions were released before their batch had finished; their next owner reads the records again.",
    ),
    LogEvent(
        "partitions_revoked",
        ("info",),
        "zkconsumer.rebalance",
        "Partitions were released for other consumers after their offsets were committed.",
    ),
    LogEvent(
        "partitions_skipped",
        ("warning",),
        "zkconsumer.spark",
        "The checkpoint contains partitions that the option assign does not list; they are not read.",
    ),
    LogEvent(
        "partitions_unavailable",
        ("warning",),
        "zkconsumer.spark",
        "Partitions have no leader, or their leaders do not respond. Batches do not contain them until they do.",
    ),
    LogEvent(
        "property_ignored",
        ("warning",),
        "zkconsumer.config",
        "A property of the JVM consumer was set that has no effect.",
    ),
    LogEvent(
        "property_unknown",
        ("warning",),
        "zkconsumer.config",
        "A property is unknown and was ignored.",
    ),
    LogEvent(
        "query_event_failed",
        ("error",),
        "zkconsumer.spark",
        "The query listener could not handle an event of a query; other queries are not affected.",
    ),
    LogEvent(
        "query_message_failed",
        ("error",),
        "zkconsumer.spark",
        "A message of a planning process or of a task could not be handled, and its connection was closed.",
    ),
    LogEvent(
        "query_not_monitored",
        ("warning",),
        "zkconsumer.spark",
        "The options of a started query could not be read; the driver does not commit its offsets and has no "
        "metrics for it.",
    ),
    LogEvent(
        "query_started",
        ("info",),
        "zkconsumer.spark",
        "The query has joined its group, or with membership=none has listed its partitions.",
    ),
    LogEvent(
        "rebalance_failed",
        ("info", "error"),
        "zkconsumer.rebalance",
        "A rebalance attempt failed and will be retried. The level is error after each rebalance.max.retries attempts.",
    ),
    LogEvent(
        "rebalance_failed_unexpectedly",
        ("error",),
        "zkconsumer.rebalance",
        "A rebalance attempt failed with an unexpected exception and will be retried.",
    ),
    LogEvent(
        "rebalance_listener_still_running",
        ("error",),
        "zkconsumer.rebalance",
        "A callback of the ConsumerRebalanceListener was skipped because an earlier one has not returned.",
    ),
    LogEvent(
        "rebalance_listener_timed_out",
        ("error",),
        "zkconsumer.rebalance",
        "A callback of the ConsumerRebalanceListener did not return in time; the rebalance continues without "
        "waiting for it.",
    ),
    LogEvent(
        "record_dropped",
        ("warning",),
        "zkconsumer.topology",
        "A task of a topology dropped a record: an error handler returned CONTINUE or QUARANTINE, the timestamp is "
        "negative, a partitioner returned no partition, or the entry of a window, session or versioned store has "
        "expired.",
    ),
    LogEvent(
        "record_too_large",
        ("info",),
        "zkconsumer.fetcher",
        "A record does not fit into the fetch size; the next fetch requests the size of its batch. Only "
        "brokers before 0.10.1 require it.",
    ),
    LogEvent(
        "records_lost",
        ("warning",),
        "zkconsumer.spark",
        "Records were deleted before the query read them, and are skipped because failOnDataLoss is false. Tasks log "
        "it in the executors, and the planning process logs it again in the driver.",
    ),
    LogEvent(
        "records_skipped",
        ("warning",),
        "zkconsumer.spark",
        "A task has skipped corrupt record batches, or records that the decoder rejected, because "
        "corrupt.record.policy is skip. The executor has logged each of them.",
    ),
    LogEvent(
        "session_expired",
        ("warning",),
        "zkconsumer.rebalance",
        "The ZooKeeper session has expired; the consumer stops the delivery and registers again.",
    ),
    LogEvent(
        "session_lease_expired",
        ("warning",),
        "zkconsumer.rebalance",
        "The ZooKeeper session may have expired on the server; the consumer stops the delivery and registers again.",
    ),
    LogEvent(
        "skipped_records_not_reported",
        ("warning",),
        "zkconsumer.spark",
        "A task could not report to the driver that it has skipped records; the progress report does not count them.",
    ),
    LogEvent(
        "start_positions_resolved",
        ("info",),
        "zkconsumer.spark",
        "The start offsets of acquired partitions were determined, each with its source.",
    ),
    LogEvent(
        "stream_close_failed",
        ("error",),
        "zkconsumer.spark",
        "The connections of a DStream could not be closed after its streaming context had stopped.",
    ),
    LogEvent(
        "stream_created",
        ("info",),
        "zkconsumer.spark",
        "A DStream was created. One of createStream joins its group when its first batch is planned; one of "
        "createDirectStream starts at these offsets.",
    ),
    LogEvent(
        "topic_ids_not_stored",
        ("warning",),
        "zkconsumer.offsets",
        "ZooKeeper denies access to the znodes with the topic ids of offsets. Offsets are committed without them, so a "
        "topic that is deleted and created again while no consumer runs is not detected.",
    ),
    LogEvent(
        "topic_metadata_unavailable",
        ("warning",),
        "zkconsumer.cluster",
        "No broker returned the metadata of a topic that existed, for example because access to it was denied. Its "
        "last known partitions remain assigned.",
    ),
    LogEvent(
        "topic_missing",
        ("warning",),
        "zkconsumer.rebalance",
        "Topics of the subscription do not exist.",
    ),
    LogEvent(
        "topic_names_invalid",
        ("warning",),
        "zkconsumer.cluster",
        "Znodes of topics have names that brokers reject; topic filters skip them.",
    ),
    LogEvent(
        "topic_recreated",
        ("warning",),
        "zkconsumer.rebalance",
        "The topic was deleted and created again after the offset was committed; the partitions are read from the "
        "beginning.",
    ),
    LogEvent(
        "topics_skipped",
        ("warning",),
        "zkconsumer.spark",
        "Topics of the checkpoint are not subscribed to and are not read any more.",
    ),
    LogEvent(
        "undecodable_records_skipped",
        ("error",),
        "zkconsumer.spark",
        "The decoder rejected records of a batch, which are skipped because corrupt.record.policy is skip. The event "
        "has the partition, the offset and the error of the first one.",
    ),
    LogEvent(
        "worker_python_differs",
        ("warning",),
        "zkconsumer.spark",
        "Spark's workers run another Python than the driver, because PYSPARK_PYTHON is not set.",
    ),
    LogEvent(
        "zookeeper_connection_dropped",
        ("warning",),
        "zkconsumer.zookeeper",
        "The ZooKeeper server has not responded for more than half of the session timeout; the connection is "
        "closed and kazoo connects to the next server with the same session.",
    ),
    LogEvent(
        "zookeeper_event_received",
        ("debug",),
        "zkconsumer.rebalance",
        "A ZooKeeper watch has fired or the session state has changed.",
    ),
    LogEvent(
        "zookeeper_login_failed",
        ("warning",),
        "zkconsumer.zookeeper",
        "Authentication with a ZooKeeper server failed after an earlier success; it is repeated. Logged when the error "
        "changes.",
    ),
)


def to_rst() -> str:
    """Render the tables of events and keys in reStructuredText."""
    events = [(f"``{e.name}``", ", ".join(e.levels), e.logger, e.meaning) for e in EVENTS]
    keys = [(f"``{key}``", meaning) for key, meaning in KEYS.items()]
    tables = table_to_rst(("Event", "Level", "Logger", "Meaning"), events), table_to_rst(("Key", "Meaning"), keys)
    return "\nKeys of the events:\n\n".join(tables)
