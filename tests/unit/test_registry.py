"""Tests of the paths and the JSON of znodes, which must have the same bytes as in the JVM."""

from __future__ import annotations

import json
import re
import socket
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError, RegistrationError, ZkConsumerError
from zkconsumer.excerpt import excerpt
from zkconsumer.message import TopicPartition
from zkconsumer.zookeeper import registry
from zkconsumer.zookeeper.registry import GroupPaths, Registration, new_consumer_id, thread_ids

PATH = "/consumers/g/ids/g_c"

# ---- paths ------------------------------------------------------------------------------------------


def test_paths_equal_those_of_original() -> None:
    paths = GroupPaths("g")
    partition = TopicPartition("orders", 10)

    assert paths.root == "/consumers/g"
    assert paths.ids == "/consumers/g/ids"
    assert paths.registration("g_c") == "/consumers/g/ids/g_c"
    assert paths.owners("orders") == "/consumers/g/owners/orders"
    assert paths.owner(partition) == "/consumers/g/owners/orders/10"
    assert paths.offset(partition) == "/consumers/g/offsets/orders/10"
    assert registry.topic_path("orders") == "/brokers/topics/orders"


def test_offset_topic_ids_are_outside_original_subtrees() -> None:
    paths = GroupPaths("g")
    found = paths.offset_topic_id(TopicPartition("orders", 10))

    assert found == "/consumers/g/zkconsumer/offset-topic-ids/orders/10"
    assert not found.startswith(paths.subtrees)


# ---- ids --------------------------------------------------------------------------------------------


def test_configured_consumer_id_follows_group() -> None:
    assert new_consumer_id("group1", "consumer1") == "group1_consumer1"


def test_generated_consumer_id_has_host_time_and_hex() -> None:
    before = int(time.time() * 1000)
    made = new_consumer_id("group1")

    found = re.fullmatch(r"group1_(.+)-(\d{13})-([0-9a-f]{1,8})", made)
    assert found is not None, made
    assert found.group(1) == socket.gethostname()
    assert before <= int(found.group(2)) <= time.time() * 1000


def test_generated_consumer_ids_differ() -> None:
    assert len({new_consumer_id("g") for _ in range(200)}) == 200


def test_thread_ids_count_from_zero_without_padding() -> None:
    assert thread_ids("g_c", 12)[0] == "g_c-0"
    assert thread_ids("g_c", 12)[11] == "g_c-11"
    assert len(thread_ids("g_c", 12)) == 12


def test_thread_ids_sort_as_text() -> None:
    assert sorted(thread_ids("g_c", 12))[:5] == ["g_c-0", "g_c-1", "g_c-10", "g_c-11", "g_c-2"]


@given(consumer_id=st.from_regex(r"g_[a-zA-Z0-9._-]{0,20}", fullmatch=True), number=st.integers(0, 99))
def test_consumer_id_precedes_last_hyphen_of_thread_id(consumer_id: str, number: int) -> None:
    thread_id = thread_ids(consumer_id, number + 1)[number]

    assert registry.is_thread_id(thread_id)
    assert registry.consumer_of(thread_id) == consumer_id


@pytest.mark.parametrize("text", ["", "-0", "g_c", "g_c-", "g_c-x", "g_c-0\n"])
def test_other_owner_is_not_a_thread_id(text: str) -> None:
    """Clients such as kafka-node write their consumer id."""
    assert not registry.is_thread_id(text)


# ---- registrations: writing --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("registration", "written"),
    [
        (
            Registration({"topic1": 2, "topic2": 1}),
            b'{"version":1,"subscription":{"topic1":2,"topic2":1},"pattern":"static","timestamp":"1416324113226"}',
        ),
        (
            Registration({"foo|bar.*": 1}, "white_list"),
            b'{"version":1,"subscription":{"foo|bar.*":1},"pattern":"white_list","timestamp":"1416324113226"}',
        ),
        (
            Registration({r"foo\.bar": 1}, "black_list"),
            b'{"version":1,"subscription":{"foo\\\\.bar":1},"pattern":"black_list","timestamp":"1416324113226"}',
        ),
        (
            Registration({}),
            b'{"version":1,"subscription":{},"pattern":"static","timestamp":"1416324113226"}',
        ),
    ],
)
def test_registration_equals_bytes_of_jvm(
    registration: Registration, written: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1416324113.2269)

    assert registration.to_json() == written


def test_timestamp_of_registration_is_a_string() -> None:
    assert isinstance(json.loads(Registration({"t": 1}).to_json())["timestamp"], str)


topics = st.text(st.characters(min_codepoint=1, max_codepoint=0x2FFF), min_size=1, max_size=20)


@given(subscription=st.dictionaries(topics, st.integers(1, 1000), max_size=5))
def test_registration_round_trips(subscription: dict[str, int]) -> None:
    registration = Registration(subscription)

    assert Registration.from_json(PATH, registration.to_json()) == registration


# ---- registrations: reading --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "subscription", "pattern"),
    [
        # 0.8.0: whitespace, and another order of keys.
        (
            b'{ "pattern":"static", "subscription":{ "t": 1 }, "timestamp":"1416324113226", "version":1 }',
            {"t": 1},
            "static",
        ),
        # Only these two keys are required; unknown keys are ignored.
        (b'{"subscription":{"t":1},"pattern":"static"}', {"t": 1}, "static"),
        (b'{"subscription":{"t":1},"pattern":"static","extra":{"a":[1]},"version":9}', {"t": 1}, "static"),
        # A pattern other than white_list and black_list is static.
        (b'{"subscription":{"t":1},"pattern":"whatever"}', {"t": 1}, "whatever"),
        # 0.8.2 to 1.0.0, and 1.0.1 to 1.1.1, which escape twice: read literally.
        (rb'{"subscription":{"foo\\.bar":1},"pattern":"white_list"}', {r"foo\.bar": 1}, "white_list"),
        (rb'{"subscription":{"foo\\\\.bar":1},"pattern":"white_list"}', {r"foo\\.bar": 1}, "white_list"),
        (rb'{"subscription":{"a\/b":1},"pattern":"white_list"}', {"a/b": 1}, "white_list"),
        ('{"subscription":{"é":3},"pattern":"black_list"}'.encode(), {"é": 3}, "black_list"),
    ],
)
def test_registrations_of_every_release_are_read(data: bytes, subscription: dict[str, int], pattern: str) -> None:
    assert Registration.from_json(PATH, data) == Registration(subscription, pattern)


@pytest.mark.parametrize(
    ("registration", "is_filter"),
    [
        (Registration({"a.*": 1}, "white_list"), True),
        (Registration({"a.*": 1}, "black_list"), True),
        (Registration({"a.*": 1}, "static"), False),
        (Registration({"a.*": 1}, "wildcard"), False),
        (Registration({}, "white_list"), False),
    ],
)
def test_filter_needs_pattern_and_subscription(registration: Registration, is_filter: bool) -> None:
    assert registration.is_filter is is_filter


FOREIGN = [
    b"",
    b"x",
    b"null",
    b"[]",
    b"1",
    b"{}",
    b'"static"',
    b'{"subscription":{"t":1}}',
    b'{"pattern":"static"}',
    b'{"subscription":["t"],"pattern":"static"}',
    b'{"subscription":null,"pattern":"static"}',
    b'{"subscription":{"t":"x"},"pattern":"static"}',
    b'{"subscription":{"t":null},"pattern":"static"}',
    b'{"subscription":{"t":0},"pattern":"static"}',
    b'{"subscription":{"t":-1},"pattern":"static"}',
    b'{"subscription":{"t":1},"pattern":"static"',
    b'{"subscription":{"t":1001},"pattern":"static"}',
    b'{"subscription":{"t":1000000000},"pattern":"white_list"}',
    b'{"subscription":{"t":1.5},"pattern":"static"}',
    b'{"subscription":{"t":true},"pattern":"static"}',
    '{"subscription":{"t":"\u0662"},"pattern":"static"}'.encode(),
    b'{"subscription":{"t":"1_0"},"pattern":"static"}',
    b'{"subscription":{"t":1},"pattern":["static"]}',
    b"\xff\xfe{}",
    b'{"subscription":{"foo\\.bar":1},"pattern":"white_list"}',  # 0.8.1 did not escape backslashes
]


@pytest.mark.parametrize("data", FOREIGN)
def test_invalid_registration_names_path_and_content(data: bytes) -> None:
    with pytest.raises(RegistrationError) as raised:
        Registration.from_json(PATH, data)

    assert PATH in str(raised.value)
    assert repr(data) in str(raised.value)


@pytest.mark.parametrize(
    "data",
    [
        b'{"subscription":{"t":Infinity},"pattern":"static"}',
        b'{"subscription":{"t":1e400},"pattern":"static"}',
        b"[" * 100_000,
    ],
    ids=["infinity", "too large a number", "too deep"],
)
def test_registration_with_parser_limits_is_rejected(data: bytes) -> None:
    with pytest.raises(RegistrationError):
        Registration.from_json(PATH, data)


def test_long_registration_is_shortened_in_message() -> None:
    data = b'{"subscription":{"%s":0},"pattern":"static"}' % (b"t" * 40_000)

    with pytest.raises(RegistrationError) as raised:
        Registration.from_json(PATH, data)

    assert len(str(raised.value)) < 700
    assert f"({len(data)} bytes)" in str(raised.value)


def test_streams_as_digits_are_read() -> None:
    assert Registration.from_json(PATH, b'{"subscription":{"t":"12"},"pattern":"static"}').subscription == {"t": 12}


@pytest.mark.parametrize("count", [0, 1001, True, 1.0, "1"])
def test_own_number_of_streams_has_the_same_limits(count: int) -> None:
    with pytest.raises(ConfigurationError, match="number of streams must be an integer between 1 and 1000"):
        Registration.static({"t": count})
    assert Registration.static({"t": 1, "u": 1000}).subscription == {"t": 1, "u": 1000}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(subscription=json_values, pattern=json_values)
@example(subscription={"t": 1}, pattern="static")
def test_any_json_is_registration_or_error(subscription: object, pattern: object) -> None:
    try:
        found = Registration.from_json(PATH, json.dumps({"subscription": subscription, "pattern": pattern}).encode())
    except RegistrationError:
        return
    assert isinstance(subscription, dict)
    assert all(isinstance(count, int) and count >= 1 for count in found.subscription.values())


@given(data=st.binary(max_size=60))
def test_any_bytes_are_registration_or_error(data: bytes) -> None:
    with pytest.raises(RegistrationError):
        Registration.from_json(PATH, data)


# ---- topics -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "partitions"),
    [
        (b'{"version":1,"partitions":{"0":[1,2],"1":[2,1]}}', [0, 1]),
        (b'{"version":1,"partitions":{"10":[1],"9":[1],"0":[1]}}', [0, 9, 10]),
        (
            b'{"removing_replicas":{},"partitions":{"0":[0]},"topic_id":"vGcMCkhSTJ-GqCtFvCpNYg","adding_replicas":{},'
            b'"version":3}',
            [0],
        ),
        (b'{"version":1,"partitions":{}}', []),
    ],
)
def test_partitions_are_sorted_numerically(data: bytes, partitions: list[int]) -> None:
    assert registry.parse_partitions("t", data) == partitions


NO_PARTITIONS = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b'{"partitions":null}',
    b'{"partitions":[0.9]}',
    b"[" * 100_000,
    *(b'{"partitions":{"0":[1],"%s":[1]}}' % name.encode() for name in ("a", "-1", "99999999999", "01", "٢", " 1", "")),
]


@pytest.mark.parametrize("data", NO_PARTITIONS, ids=[repr(data[:40]) for data in NO_PARTITIONS])
def test_topic_without_partitions_is_rejected(data: bytes) -> None:
    with pytest.raises(ZkConsumerError) as raised:
        registry.parse_partitions("t", data)

    assert "/brokers/topics/t" in str(raised.value)
    assert excerpt(data) in str(raised.value)
    assert len(str(raised.value)) < 700


# ---- brokers ------------------------------------------------------------------------------------------


def broker(**content: object) -> bytes:
    return json.dumps(content).encode()


def test_first_of_several_expressions_is_used() -> None:
    found = registry.Registration.from_json("/ids/a", b'{"subscription":{"a":1,"b":2},"pattern":"white_list"}')

    assert found.subscription == {"a": 1}


@pytest.mark.parametrize(
    ("data", "endpoint"),
    [
        (broker(version=1, host="h1", port=9092, jmx_port=-1, timestamp="1416324113226"), ("h1", 9092)),
        (
            broker(version=2, host="h1", port=9092, jmx_port=-1, timestamp="1", endpoints=["PLAINTEXT://h2:9093"]),
            ("h2", 9093),
        ),
        (
            broker(version=3, host=None, port=-1, endpoints=["SSL://h1:9093", "PLAINTEXT://h1:9094"], rack="r1"),
            ("h1", 9094),
        ),
        (
            broker(
                version=4,
                host=None,
                port=-1,
                endpoints=["CLIENTS://h1:1", "INSIDE://h2:2"],
                listener_security_protocol_map={"CLIENTS": "SASL_SSL", "INSIDE": "PLAINTEXT"},
            ),
            ("h2", 2),
        ),
        (
            broker(
                features={},
                listener_security_protocol_map={"PLAINTEXT": "PLAINTEXT"},
                endpoints=["PLAINTEXT://[::1]:9092"],
                jmx_port=-1,
                port=9092,
                host="::1",
                version=5,
                timestamp="1416324113226",
            ),
            ("::1", 9092),
        ),
        (
            broker(version=2, host="h1", port=9092, endpoints=["PLAINTEXT://h1:1", "PLAINTEXT://h1:2"]),
            ("h1", 1),
        ),
        # A listener named PLAINTEXT with another security protocol.
        (
            broker(
                version=4,
                endpoints=["PLAINTEXT://h1:1", "OTHER://h1:2"],
                listener_security_protocol_map={"PLAINTEXT": "SSL", "OTHER": "PLAINTEXT"},
            ),
            ("h1", 2),
        ),
    ],
    ids=["v1", "v2", "v3", "v4", "v5", "first of two", "misleading name"],
)
def test_broker_znode_of_every_version_is_read(data: bytes, endpoint: tuple[str, int]) -> None:
    found = registry.parse_broker("1", data, "PLAINTEXT")

    assert (found.host, found.port) == endpoint
    assert found.has_api_versions is (json.loads(data)["version"] >= 3)  # those of 0.10 and later do


def test_broker_without_plaintext_is_rejected() -> None:
    data = broker(version=4, host=None, port=-1, endpoints=["SSL://h:1"], listener_security_protocol_map={"SSL": "SSL"})

    with pytest.raises(ZkConsumerError) as raised:
        registry.parse_broker("7", data, "PLAINTEXT")

    assert "broker 7 has no PLAINTEXT listener" in str(raised.value)
    assert str(raised.value).endswith("; set security.protocol to SSL")


@pytest.mark.parametrize(
    ("endpoints", "remedy"),
    [
        (["PLAINTEXTSASL://h:1"], "set security.protocol to SASL_PLAINTEXT"),
        (
            ["CLIENT://h:1", "SASL_SSL://h:2", "PLAINTEXTSASL://h:1"],
            "set security.protocol to SASL_PLAINTEXT or SASL_SSL",
        ),
        (["CLIENT://h:1"], "add one to the broker's listeners"),
        ([], "add one to the broker's listeners"),
    ],
)
def test_remedy_for_missing_listener_names_valid_protocols(endpoints: list[str], remedy: str) -> None:
    data = broker(version=2, host=None, port=-1, endpoints=endpoints)
    with pytest.raises(ZkConsumerError) as raised:
        registry.parse_broker("7", data, "PLAINTEXT")
    assert str(raised.value).endswith(f"; {remedy}")
    for protocol in re.findall(r"\b(?:SASL_)?(?:PLAINTEXT|SSL)\b", remedy):
        config = ConsumerConfig.from_dict(
            {
                "group.id": "g",
                "zookeeper.connect": "z:1",
                "security.protocol": protocol,
                "sasl.username": "u",
                "sasl.password": "p",
            }
        )
        assert registry.parse_broker("7", data, config.security_protocol).host == "h"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"5",
        b'{"endpoints":5}',
        b'{"endpoints":[5]}',
        b'{"endpoints":["PLAINTEXT://h"]}',
        b'{"version":1e999,"host":"h","port":9092}',
        b'{"version":1,"host":"h","port":1e999}',
        b'{"version":1,"host":"h","port":9092.5}',
        b'{"version":1,"host":"h","port":99999}',
        b'{"version":1,"host":"h","port":-2}',
        b'{"version":1,"host":"h\\u001b[31m","port":9092}',
        b'{"version":-1,"host":"h","port":9092}',
        b'{"version":4,"endpoints":["PLAINTEXT://h:1"],"listener_security_protocol_map":["a"]}',
    ],
)
def test_invalid_broker_znode_names_path_and_content(data: bytes) -> None:
    with pytest.raises(ZkConsumerError) as raised:
        registry.parse_broker("7", data, "PLAINTEXT")

    assert "/brokers/ids/7" in str(raised.value) or "broker 7" in str(raised.value)
    assert repr(data) in str(raised.value)


def test_host_may_have_255_characters() -> None:
    assert registry.parse_broker("7", broker(version=1, host="h" * 255, port=1), "PLAINTEXT").host == "h" * 255
    with pytest.raises(ZkConsumerError, match="does not contain a valid broker registration"):
        registry.parse_broker("7", broker(version=1, host="h" * 256, port=1), "PLAINTEXT")


@pytest.mark.parametrize("node", ["x", "-1", "٢", "99999999999", "\x1b[31m"])
def test_name_of_broker_znode_must_be_id(node: str) -> None:
    with pytest.raises(ZkConsumerError, match="is not a broker id"):
        registry.parse_broker(node, broker(version=1, host="h", port=1), "PLAINTEXT")


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("2147483647", 2147483647), ("2147483648", None), ("00", None), ("²", None), ("1\n", None), ("", None)],
)
def test_partition_number_is_canonical_int32(text: str, number: int | None) -> None:
    assert registry.parse_partition_number(text) == number


# ---- offsets ------------------------------------------------------------------------------------------


OFFSET = "/consumers/g/offsets/t/0"


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"0", 0),
        (b"42", 42),
        (b"9223372036854775806", (1 << 63) - 2),
        (b"9223372036854775807", (1 << 63) - 2),
        (b" 42\n", 42),
        (b"-1", -1),
        (b"-5", -1),
        (b"", -1),
        (None, -1),
    ],
)
def test_offset_is_decimal_text_or_minus_one(data: bytes | None, offset: int) -> None:
    assert registry.parse_offset(OFFSET, data) == offset


@pytest.mark.parametrize("offset", [0, 42, registry.OFFSET_MAX - 1])
def test_offset_is_written_in_decimal(offset: int) -> None:
    data = registry.format_offset(offset)

    assert data == str(offset).encode()
    assert registry.parse_offset(OFFSET, data) == offset


@pytest.mark.parametrize("data", [b"x", b"1.5", b"1 2", b"1_000", b"99999999999999999999", b"\x80\xff"])
def test_invalid_offset_names_path_and_content(data: bytes) -> None:
    with pytest.raises(ZkConsumerError, match="must contain an integer offset") as raised:
        registry.parse_offset(OFFSET, data)

    assert OFFSET in str(raised.value)
    assert repr(data) in str(raised.value)


@pytest.mark.parametrize("topic_count", [{"a/b": 1}, {"": 1}, {"t": 0}])
def test_invalid_own_subscription_is_rejected(topic_count: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        Registration.static(topic_count)


def test_topic_id_is_read_from_base64() -> None:
    found = registry.parse_topic_id("t", b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw"}')
    assert found is not None
    assert found.bytes == bytes(range(16))
    assert registry.parse_topic_id("t", b'{"version":2}') is None


@pytest.mark.parametrize("data", [b'{"topic_id":"AAEC"}', b'{"topic_id":7}', b"[]", b"x"])
def test_malformed_topic_id_names_path_and_content(data: bytes) -> None:
    with pytest.raises(ZkConsumerError, match=r"/brokers/topics/t does not contain a valid topic id: .+"):
        registry.parse_topic_id("t", data)


def test_version_of_broker_znode_may_be_zero() -> None:
    assert registry.parse_broker("1", b'{"version":0,"host":"h","port":1}', "PLAINTEXT").port == 1
    with pytest.raises(ZkConsumerError, match="does not contain a valid broker registration"):
        registry.parse_broker("1", b'{"version":-1,"host":"h","port":1}', "PLAINTEXT")
