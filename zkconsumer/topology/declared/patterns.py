"""Source topics: checks for new sources, and matching of patterns against existing topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from zkconsumer.errors import ConfigurationError, TopologyError
from zkconsumer.topology.checks import check_name, check_text
from zkconsumer.topology.declared.nodes import SourceNode

if TYPE_CHECKING:
    from zkconsumer.topic_filter import TopicFilter


def create_filter(pattern: str) -> TopicFilter:
    """Return the topic filter for ``pattern``.

    Raises:
        ConfigurationError: the pattern is not a valid regular expression, or contains an unsupported construct.
    """
    # Imported here, because topologies without patterns do not need the package regex.
    from zkconsumer.topic_filter import Whitelist

    return Whitelist(pattern)


def match_topics(sources: Iterable[SourceNode], existing: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the topics of each source, by source name. Patterns are matched against the existing topics.

    Raises:
        TopologyError: two patterns match the same topic.
    """
    topics = list(existing)
    matched: dict[str, tuple[str, ...]] = {}
    owner: dict[str, SourceNode] = {}
    for source in sources:
        if source.pattern is None:
            matched[source.name] = source.topics
            continue
        matched[source.name] = tuple(create_filter(source.pattern).select(topics))
        for topic in matched[source.name]:
            other = owner.setdefault(topic, source)
            if other is not source:
                raise TopologyError(
                    f"topic {topic!r} matches the patterns {other.pattern!r} of source {other.name!r} and "
                    f"{source.pattern!r} of source {source.name!r}"
                )
    return matched


def check_topics(name: str, topics: tuple[str, ...], sources: Iterable[SourceNode]) -> None:
    """Raise TopologyError if a new source has no topics, or a topic is listed twice or read by another source."""
    if not topics:
        raise TopologyError(f"source {name!r} needs at least one topic or a pattern")
    others = list(sources)
    for index, topic in enumerate(topics):
        check_name("topic", topic)
        if topic in topics[:index]:
            raise TopologyError(f"source {name!r} lists topic {topic!r} twice")
        for other in others:
            if topic in other.topics:
                raise TopologyError(f"topic {topic!r} is already read by source {other.name!r}")
            if other.pattern is not None and create_filter(other.pattern).is_topic_allowed(topic, False):
                raise TopologyError(
                    f"topic {topic!r} is already read by source {other.name!r}, because it matches pattern "
                    f"{other.pattern!r}"
                )


def check_pattern(name: str, pattern: str, sources: Iterable[SourceNode], global_topics: set[str]) -> None:
    """Raise TopologyError if a new source's pattern is invalid or matches another source's topic.

    Patterns never select the topics of global stores, so these topics are ignored.
    """
    check_text(f"source {name!r}: pattern", pattern)
    if set(pattern) & set(", \"'"):
        raise TopologyError(
            f"source {name!r}: pattern must not contain commas, spaces or quotation marks, got {pattern!r}"
        )
    try:
        topic_filter = create_filter(pattern)
    except ConfigurationError as error:
        raise TopologyError(f"source {name!r}: {error}") from error
    for other in sources:
        for topic in topic_filter.select([topic for topic in other.topics if topic not in global_topics], False):
            raise TopologyError(
                f"source {name!r}: pattern {pattern!r} matches topic {topic!r}, which source {other.name!r} reads"
            )
