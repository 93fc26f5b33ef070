"""Tests of the options of the data source: defaults, validation and contradictions."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zkconsumer.config.properties import property_names
from zkconsumer.errors import ConfigurationError
from zkconsumer.excerpt import excerpt
from zkconsumer.message import TopicPartition
from zkconsumer.spark.options.limits import Limits
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.options.starting_offsets import StartingOffsets
from zkconsumer.spark.options.table import BY_NAME

REQUIRED = {"zookeeper.connect": "localhost:2181", "group.id": "g", "subscribe": "orders"}


def parse(**settings: str) -> SourceOptions:
    return SourceOptions.parse(REQUIRED | {name.replace("_", "."): value for name, value in settings.items()})


def test_defaults_match_documentation() -> None:
    options = parse()
    assert options.subscription.topics == ("orders",)
    assert options.is_member
    assert options.streams == 1
    assert options.starting_offsets == StartingOffsets("group", {})
    assert options.commits
    assert options.fails_on_data_loss
    assert not options.keeps_unsubscribed
    assert options.limits == Limits(10_000_000, False, None, 0, 900.0, None, None, None)
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert options.min_partitions is None
    assert options.max_records_per_partition is None
    assert options.revoke_timeout_s == 5.0
    assert options.unavailable_timeout_s == 120.0
    assert options.consumer.group_id == "g"
    assert options.consumer.auto_offset_reset == "largest"


@pytest.mark.parametrize(
    ("name", "mode", "marker"), [("startingOffsets", "latest", -1), ("endingOffsets", "earliest", -2)]
)
def test_batch_read_that_returns_no_records_is_rejected(name: str, mode: str, marker: int) -> None:
    """Spark's Kafka source rejects these offsets, too."""
    texts = {
        mode: "",
        f" {mode.upper()} ": "",
        f'{{"a":"earliest" ,"b":"{mode.title()}"}}'
        if mode == "latest"
        else f'{{"b":"{mode.title()}"}}': " (topic 'b')",
        f'{{"a":{{"0":5,"7":{marker}}}}}': " (topic 'a' partition 7)",
    }
    for text, place in texts.items():
        with pytest.raises(ConfigurationError) as refusal:
            SourceOptions.parse({**REQUIRED, name: text}, batch=True)
        assert str(refusal.value) == (
            f"option {name!r} must not be {mode!r} or {marker} for batch reads, because no records would be read{place}"
        )
    other = {"latest": "earliest", "earliest": "latest"}[mode]
    for text in (other, "group", json.dumps({"a": other}), json.dumps({"a": {"0": -3 - marker, "1": 5}})):
        SourceOptions.parse({**REQUIRED, name: text}, batch=True)
    prefix = name.removesuffix("Offsets")
    for overriding, value in ((f"{prefix}Timestamp", "5"), (f"{prefix}OffsetsByTimestamp", '{"a":5}')):
        SourceOptions.parse({**REQUIRED, name: mode, overriding: value}, batch=True)


def test_stream_may_start_at_latest_offsets() -> None:
    for text in ("latest", '{"a":"latest"}', '{"a":{"0":-1}}'):
        SourceOptions.parse({**REQUIRED, "startingOffsets": text})


@pytest.mark.parametrize("properties", [{"owner": "me"}, {"Owner": "", "provider": "zkconsumer"}])
def test_table_is_rejected_with_remedy(properties: dict[str, str]) -> None:
    for batch in (False, True):
        with pytest.raises(ConfigurationError, match=r"does not support tables .*create a view instead") as refusal:
            SourceOptions.parse(properties, batch=batch)
        assert "unknown option" not in str(refusal.value)


def test_topics_are_separated_by_commas() -> None:
    assert parse(subscribe=" a, b ,,c").subscription.topics == ("a", "b", "c")


def test_option_names_are_case_insensitive() -> None:
    options = SourceOptions.parse(
        {"ZooKeeper.Connect": "zk", "GROUP.ID": "g", "Subscribe": "t", "INCLUDEHEADERS": "TRUE", "minpartitions": "3"}
    )
    assert (options.subscription.topics, options.columns[-1], options.min_partitions) == (("t",), "headers", 3)
    assert options.consumer.zookeeper_connect == "zk"


def test_consumer_properties_are_options() -> None:
    options = parse(fetch_message_max_bytes="12345", num_consumer_fetchers="4", auto_offset_reset="smallest")
    assert options.consumer.fetch_message_max_bytes == 12345
    assert options.consumer.num_consumer_fetchers == 4
    assert options.consumer.auto_offset_reset == "smallest"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("group", "group.id"),
        ("zookeeper.conect", "zookeeper.connect"),
        ("auto.offset.rest", "auto.offset.reset"),
        ("includeheader", "includeHeaders"),
        ("minpartition", "minPartitions"),
        ("revoketimout", "revokeTimeout"),
        ("subscribepatern", "subscribePattern"),
        ("startingoffset", "startingOffsets"),
        ("maxoffsetspertriger", "maxOffsetsPerTrigger"),
        ("clusterunavailabletime", "clusterUnavailableTimeout"),
    ],
)
def test_unknown_option_suggests_nearest_name(name: str, near: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        SourceOptions.parse(REQUIRED | {name: "x"})
    assert str(refusal.value) == f"unknown option {name!r}; did you mean {near!r}?"


def test_misspelled_subscription_suggests_its_name() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        SourceOptions.parse({"zookeeper.connect": "localhost:2181", "group.id": "g", "subscibe": "orders"})

    missing, unknown = str(refusal.value).splitlines()
    assert missing.startswith("no topics to read: set one of the options subscribe, subscribePattern, ")
    assert unknown == "unknown option 'subscibe'; did you mean 'subscribe'?"


def test_unknown_option_without_suggestion() -> None:
    with pytest.raises(ConfigurationError, match=r"^unknown option 'qqq'$"):
        SourceOptions.parse(REQUIRED | {"qqq": "x"})


@pytest.mark.parametrize(
    "name", ["auto.commit.enable", "auto.commit.interval.ms", "consumer.timeout.ms", "consumer.id"]
)
def test_properties_unusable_in_queries_are_rejected(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"option '{name}' cannot be set for a Spark query: \w+"):
        SourceOptions.parse(REQUIRED | {name: "1"})


def test_exponential_pattern_is_rejected_in_limited_time() -> None:
    pattern = {"subscribePattern": r"([\w-]|[\w-]{2})+[.]x|no", "group.id": "g", "zookeeper.connect": "h:2181"}
    options = SourceOptions.parse(pattern)

    with pytest.raises(ConfigurationError, match="takes more than 1 s of CPU time"):
        options.subscription.wants("orders-" * 20, True)


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_missing_option_is_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        SourceOptions.parse({key: value for key, value in REQUIRED.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("numStreams", "0"),
        ("numStreams", "-1"),
        ("numStreams", "1.5"),
        ("numStreams", "two"),
        ("numStreams", "1001"),
        ("numStreams", ""),
        ("numStreams", "\u00b2"),
        ("minPartitions", "0"),
        ("revokeTimeout", "-1"),
        ("revokeTimeout", "5 weeks"),
        ("clusterUnavailableTimeout", "0"),
        ("includeHeaders", "yes"),
        ("subscribe", " , "),
        ("subscribe", "orders/1"),
        ("subscribe", "a b"),
        ("subscribe", ".."),
        ("subscribe", "t" * 250),
        ("auto.offset.reset", "earliest"),
        ("isolation.level", "serializable"),
        ("fetch.message.max.bytes", "1M"),
        ("check.crcs", "yes"),
        ("membership", "all"),
        ("startingOffsets", "newest"),
        ("startingOffsets", '{"orders":5}'),
        ("startingOffsets", '{"orders":{"0":-3}}'),
        ("startingOffsets", '{"orders":{"x":1}}'),
        ("startingOffsets", '["orders"]'),
        ("startingOffsets", "{orders}"),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "1e13"),
        ("startingOffsetsByTimestamp", '{"orders":{"0":"now"}}'),
        ("startingOffsetsByTimestamp", "5"),
        ("startingOffsetsByTimestampStrategy", "fail"),
        ("resumeFrom", "newest"),
        ("ignoreUnsubscribedTopics", "no"),
        ("commitOffsets", "periodic"),
        ("failOnDataLoss", "maybe"),
        ("maxOffsetsPerTrigger", "0"),
        ("minOffsetsPerTrigger", "-1"),
        ("minOffsetsPerTrigger", "10000001"),
        ("maxTriggerDelay", "5 weeks"),
        ("maxRecordsPerPartition", "0"),
        ("columns", "value,values"),
        ("columns", "value,value"),
        ("columns", ""),
        ("group.id", "a/b"),
        ("zookeeper.connect", " "),
    ],
)
def test_malformed_value_names_option_and_value(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        SourceOptions.parse(REQUIRED | {name: value})
    assert name in str(refusal.value)
    assert value.strip(" ,")[:50] in str(refusal.value)


def test_java_long_maximum_is_largest_limit() -> None:
    assert parse(maxOffsetsPerTrigger="9223372036854775807").limits.max_offsets == 9223372036854775807
    with pytest.raises(ConfigurationError, match="got '9223372036854775808'"):
        parse(maxOffsetsPerTrigger="9223372036854775808")


@given(st.text(min_size=1))
def test_any_text_is_known_option_or_rejected(name: str) -> None:
    known = {*property_names(), *BY_NAME, "path"}
    if name.lower().removeprefix("kafka.") in known or name.lower().startswith("decoder."):
        return
    with pytest.raises(ConfigurationError) as refusal:
        SourceOptions.parse(REQUIRED | {name: "1"})
    assert repr(name.lower()) in str(refusal.value)


@given(st.sampled_from(["numStreams", "minPartitions", "maxBytesPerTrigger"]), st.text())
@example("maxBytesPerTrigger", "00")
@example("numStreams", "\x1f7")
@example("numStreams", "9223372036854775808")
def test_any_text_is_number_or_rejected(name: str, value: str) -> None:
    most = {"numStreams": 1000, "minPartitions": 100_000}.get(name, (1 << 63) - 1)
    digits = re.fullmatch(r"\s*([+-]?[0-9]{1,19})\s*", value)
    if digits is not None and 1 <= int(digits[1]) <= most:
        SourceOptions.parse(REQUIRED | {name: value})
    else:
        with pytest.raises(ConfigurationError) as refusal:
            SourceOptions.parse(REQUIRED | {name: value})
        assert name in str(refusal.value)
        assert excerpt(value.strip()) in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"whitelist": "a"}, "options subscribe and whitelist are mutually exclusive; set exactly one of them"),
        ({"subscribe": None, "assign": '{"a":[0]}'}, "option assign requires membership=none"),
        ({"subscribe": None, "assign": '{"a":0}', "membership": "none"}, "must be JSON with partitions by topic"),
        (
            {"subscribe": None, "subscribePattern": "a{1,2}"},
            "a regular expression without a comma, got 'a{1,2}': other",
        ),
        ({"subscribe": None, "whitelist": "a("}, "invalid regex"),
        (
            {"subscribe": None, "subscribePattern": ""},
            "option 'subscribePattern' must be a non-empty regular expression, got ''",
        ),
        ({"subscribe": None, "whitelist": " "}, "option 'whitelist' must be a non-empty regular expression, got ''"),
        (
            {"subscribe": None, "whitelist": "''"},
            "must be a non-empty regular expression, got \"''\"",
        ),
        ({"includeHeaders": "true", "columns": "value"}, "columns does not contain 'headers'"),
        ({"kafka.linger.ms": "1"}, "unknown property 'linger.ms'"),
        ({"kafka.group.id": "h"}, "options 'kafka.group.id' and 'group.id' are the same property"),
        ({"groupIdPrefix": "x"}, "set group.id"),
        ({"kafkaConsumer.pollTimeoutMs": "1"}, "use clusterUnavailableTimeout"),
    ],
)
def test_contradicting_options_are_rejected(options: dict[str, str | None], said: str) -> None:
    given = {name: value for name, value in {**REQUIRED, **options}.items() if value is not None}
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        SourceOptions.parse(given)


def test_error_lists_all_problems_of_options() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        SourceOptions.parse(
            {
                "kafka.bootstrap.servers": "a:1",
                "kafka.max.poll.records": "500",
                "kafka.ssl.truststore.location": "a.jks",
                "subscibe": "t",
                "startingOffsets": "first",
                "maxOffsetsPerTrigger": "many",
                "includeHeader": "true",
                "kafka.fetch.min.bytes": "x",
                "consumer.id": "one",
                "group.id": "g",
            }
        )

    counterpart = "its counterpart is 'ssl.ca.location' (PEM instead of a Java keystore)"
    lines = str(refusal.value).splitlines()
    assert sorted(line for line in lines if not line.startswith(("no topics to read", "option 'startingOffsets'"))) == [
        "Missing required property 'zookeeper.connect'; to read without ZooKeeper and without joining a group, set "
        "membership=none and bootstrap.servers",
        "option 'consumer.id' cannot be set for a Spark query: each query start adds a new consumer to the group",
        "option 'maxOffsetsPerTrigger' must be an integer between 1 and 9223372036854775807, got 'many'",
        "property 'fetch.min.bytes' must be an integer between 0 and 2147483647, got 'x'",
        "unknown option 'includeheader'; did you mean 'includeHeaders'?",
        "unknown option 'subscibe'; did you mean 'subscribe'?",
        "unknown property 'max.poll.records' in option 'kafka.max.poll.records'; it has no counterpart; remove it",
        f"unknown property 'ssl.truststore.location' in option 'kafka.ssl.truststore.location'; {counterpart}",
    ]
    assert "option 'startingOffsets' must be 'group', 'earliest'" in str(refusal.value)


@pytest.mark.parametrize("membership", ["both", "group"])
def test_problem_of_membership_causes_no_others(membership: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        SourceOptions.parse({"membership": membership, "commitOffsets": "periodic", "subscribe": "t"}, batch=True)

    assert str(refusal.value).startswith("option 'membership' must be 'none'") or membership == "both"
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize("batch", [True, False])
def test_missing_zookeeper_names_reading_without_group(batch: bool) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        SourceOptions.parse({"subscribe": "t", "group.id": "g"}, batch=batch)

    assert str(refusal.value) == (
        "Missing required property 'zookeeper.connect'; to read without ZooKeeper and without joining a group, set "
        "membership=none and bootstrap.servers"
    )


def test_kafka_prefix_is_an_alias() -> None:
    options = SourceOptions.parse(
        {"kafka.bootstrap.servers": "a:1", "kafka.security.protocol": "SSL", "subscribe": "t", "membership": "none"}
    )
    assert (options.consumer.bootstrap_servers, options.consumer.security_protocol) == ("a:1", "SSL")
    assert (options.is_member, options.commits, options.has_zookeeper) == (False, False, False)


def test_columns_have_requested_order() -> None:
    options = parse(columns="Value, OFFSET,headers")
    assert options.schema == "value binary, offset bigint, headers array<struct<key: string, value: binary>>"


def test_assign_requires_no_membership() -> None:
    options = SourceOptions.parse(
        {"zookeeper.connect": "z", "membership": "none", "assign": '{"b":[1,0],"a":[2]}', "commitOffsets": "false"}
    )
    assert options.subscription.assigned == (TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))


@pytest.mark.parametrize("auto_commit", [None, "true", "false"])
@pytest.mark.parametrize("interval", [None, "1000"])
@pytest.mark.parametrize("commits", [None, "true", "false"])
@pytest.mark.parametrize("membership", ["group", "none"])
def test_query_commits_per_batch_or_never(
    auto_commit: str | None, interval: str | None, commits: str | None, membership: str
) -> None:
    wanted = {
        "zookeeper.connect": "localhost:2181",
        "group.id": "g",
        "subscribe": "t",
        "membership": membership,
        "auto.commit.enable": auto_commit,
        "auto.commit.interval.ms": interval,
        "commitOffsets": commits,
    }
    options = {name: value for name, value in wanted.items() if value is not None}
    if auto_commit is not None or interval is not None:
        refused = "auto.commit.enable" if auto_commit is not None else "auto.commit.interval.ms"
        with pytest.raises(ConfigurationError, match=f"'{refused}' cannot be set.*use commitOffsets"):
            SourceOptions.parse(options)
    else:
        assert SourceOptions.parse(options).commits is (
            commits == "true" or (commits is None and membership == "group")
        )
