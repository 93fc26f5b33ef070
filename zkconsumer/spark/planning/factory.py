"""Creates a planner and its components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.spark.offset import INITIAL, BatchOffset
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.alignment import Alignment
from zkconsumer.spark.planning.available_offsets import AvailableOffsets
from zkconsumer.spark.planning.batch_offset_factory import BatchOffsetFactory
from zkconsumer.spark.planning.batch_planner import BatchPlanner
from zkconsumer.spark.planning.batch_shares import BatchShares
from zkconsumer.spark.planning.end_offsets import EndOffsets
from zkconsumer.spark.planning.planner import Planner
from zkconsumer.spark.planning.planner_commits import PlannerCommits
from zkconsumer.spark.planning.planner_reports import PlannerReports
from zkconsumer.spark.planning.query_member import QueryMember
from zkconsumer.spark.planning.query_topics import QueryTopics
from zkconsumer.spark.planning.skipped_records import SkippedRecords
from zkconsumer.spark.planning.starting_positions import StartingPositions
from zkconsumer.spark.planning.topic_ids import TopicIds
from zkconsumer.spark.planning.topic_states import TopicStates


def create_planner(
    options: SourceOptions,
    seen: Mapping[str, Any] = INITIAL,
    *,
    application: int | None = None,
    joined: QueryMember | None = None,
) -> Planner:
    """Create a planner without starting it.

    Args:
        seen: an offset from Spark's offset log.
        application: number of the Spark application, unique on this host; None if it is unknown.
        joined: a member that has joined early; None to create a member.

    Raises:
        ConfigurationError: the checkpoint belongs to another query.
    """
    member = _resume(joined, seen) or QueryMember(options, seen, application=application)
    tracker, config, log, last = member.tracker, member.config, member.log, BatchOffset.from_json(seen)
    logs = LogOffsets.from_config(member.group_member.cluster.brokers, config)
    available = AvailableOffsets(logs, log)
    skipped = SkippedRecords(log, fails_on_data_loss=options.fails_on_data_loss)
    commits = PlannerCommits(member.group_member, tracker, log, timeout_s=config.zookeeper_connection_timeout_s)
    timeout_s = options.unavailable_timeout_s
    ends = EndOffsets(available, tracker, skipped, log, unavailable_timeout_s=timeout_s)
    topic_ids = _create_topic_ids(member, last)
    topics = QueryTopics(member, tracker, topic_ids, ends, skipped, unavailable_timeout_s=timeout_s)
    starts = StartingPositions(tracker, available, skipped, commits if options.commits else None, config, log)
    shares = BatchShares(options.limits, Alignment.from_options(options, logs, last.idle), logs)
    offsets = BatchOffsetFactory(
        member.group_member,
        tracker,
        topics,
        shares,
        group_id=config.group_id,
        stores_lags=options.passes_ranges,
    )
    batches = BatchPlanner(member, topics, starts, ends, shares, offsets)
    reports = PlannerReports(member, ends, available, shares, commits, skipped)
    return Planner(member, batches, commits, reports, logs, unavailable_timeout_s=timeout_s)


def _resume(joined: QueryMember | None, seen: Mapping[str, Any]) -> QueryMember | None:
    """Return a member that has joined early; None if there is none, or if it cannot continue and was closed."""
    if joined is None or joined.resume(seen):
        return joined
    joined.close()
    return None


def _create_topic_ids(member: QueryMember, last: BatchOffset) -> TopicIds:
    group_member = member.group_member
    states = TopicStates(last.topic_ids, last.deleted_topics)
    return TopicIds(group_member.cluster, states, lambda: group_member.discoveries)
