"""Which topics a member's filter selects: Java's regular expressions, as far as Python's mean the same.

A filter that is read differently here than by a JVM member would give two members one partition, so whatever
is not certain to mean the same is refused.

Source: Kafka 1.1 kafka.consumer.TopicFilter, Whitelist, Blacklist.
"""

from __future__ import annotations

import re
from functools import cache

from zkconsumer.errors import ConfigurationError
from zkconsumer.registry import Registration

#: Excluded unless a member sets ``exclude.internal.topics=false``, which nobody else can see.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})

# Both dialects read these alike: literals, escaped punctuation, the three classes of ASCII, simple sets, groups,
# look-ahead, alternatives, anchors, and quantifiers. A comma cannot occur: it becomes an alternative.
_ALIKE = re.compile(
    r"""(?x) (?:
        [A-Za-z0-9_\-%#@!~=:;<>/&'"`]          # literals
      | [.|^$)]
      | \\ [.\-_|*+?()\[\]{}^$\\/dDwWsS]
      | \[ \^? (?: [A-Za-z0-9_.%#@!~=:;/] (?: - [A-Za-z0-9_] )? | \\ [.\-_\\dws] )+ -? \]
      | \( (?: \?: | \?= | \?! )?
      | (?<= [^|(^] ) (?: [*+?] | \{ [0-9]{1,4} \} ) [?+]?
    )*"""
)


def allows(registration: Registration, topic: str) -> bool:
    """Whether a member with this registration, a filter or not, reads the topic.

    Raises:
        ConfigurationError: the filter cannot be evaluated here.
    """
    if not registration.is_filter:
        return topic in registration.subscription
    matches = _pattern(next(iter(registration.subscription))).fullmatch(topic) is not None
    return matches is (registration.pattern == "white_list") and topic not in INTERNAL_TOPICS


@cache
def _pattern(text: str) -> re.Pattern[str]:
    regex = text.strip().replace(",", "|").replace(" ", "").lstrip("\"'").rstrip("\"'")
    if not _ALIKE.fullmatch(regex):
        raise ConfigurationError(
            f"the topic filter {text!r} uses regular expressions of Java that Python may read differently"
        )
    try:
        return re.compile(regex, re.ASCII)
    except re.error as error:
        raise ConfigurationError(f"{text} is an invalid regex: {error}") from error
