"""Tests of the hints for unknown properties, Spark options and options of the tools."""

from __future__ import annotations

import pytest

from zkconsumer.config.consumer_config import ConsumerConfig
from zkconsumer.config.name_hints import FOREIGN_PROPERTIES, suggest
from zkconsumer.config.properties import property_names
from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.options.table import BY_NAME, FOREIGN_OPTIONS
from zkconsumer.tools.cli import main

REQUIRED = {"group.id": "g", "zookeeper.connect": "h:2181"}
NO_COUNTERPART = "; it has no counterpart; remove it"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        # Kafka 0.7
        ("zk.connect", "; its counterpart is 'zookeeper.connect'"),
        ("fetch.size", "; its counterpart is 'fetch.message.max.bytes'"),
        ("queuedchunks.max", "; its counterpart is 'queued.max.message.chunks'"),
        ("autooffset.reset", "; its counterpart is 'auto.offset.reset'"),
        ("rebalance.retries.max", "; its counterpart is 'rebalance.max.retries'"),
        ("fetcher.backoff.ms", NO_COUNTERPART),
        # the new consumer
        ("enable.auto.commit", "; its counterpart is 'auto.commit.enable'"),
        ("fetch.max.wait.ms", "; its counterpart is 'fetch.wait.max.ms'"),
        ("request.timeout.ms", "; its counterpart is 'socket.timeout.ms'"),
        ("max.partition.fetch.bytes", "; its counterpart is 'fetch.message.max.bytes'"),
        ("max.poll.interval.ms", NO_COUNTERPART),
        ("heartbeat.interval.ms", NO_COUNTERPART),
        # security in Java
        ("ssl.truststore.location", "; its counterpart is 'ssl.ca.location' (PEM instead of a Java keystore)"),
        (
            "ssl.keystore.location",
            "; its counterparts are 'ssl.certificate.location' and 'ssl.key.location' (PEM instead of a Java keystore)",
        ),
        ("sasl.kerberos.service.name", NO_COUNTERPART),
        # librdkafka
        ("metadata.broker.list", "; its counterpart is 'bootstrap.servers'"),
        ("queued.max.messages.kbytes", "; its counterpart is 'queued.max.bytes' (in bytes)"),
        # spelling
        ("GROUP.ID", "; did you mean 'group.id'?"),
        ("Fetch.Size", "; its counterpart is 'fetch.message.max.bytes'"),
        ("auto_offset_reset", "; did you mean 'auto.offset.reset'?"),
        ("zookeper.connect", "; did you mean 'zookeeper.connect'?"),
        ("linger.ms", ""),
        ("acks", ""),
    ],
)
def test_unknown_property_has_right_hint(name: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        ConsumerConfig.from_dict({**REQUIRED, name: "1"}, strict=True)

    assert str(raised.value) == f"unknown property {name!r}{hint}"


@pytest.mark.parametrize("name", FOREIGN_PROPERTIES)
def test_foreign_property_has_existing_counterpart(name: str) -> None:
    """A spelling hint for such a property would name one that means something else."""
    known = [*property_names(), "key_decoder", "value_decoder"]

    assert name not in known
    assert name == name.lower()
    assert set(FOREIGN_PROPERTIES[name].names) <= set(known)


def test_foreign_options_have_existing_counterparts() -> None:
    options = {option.name for option in BY_NAME.values()} | set(property_names())

    assert {name for counterpart in FOREIGN_OPTIONS.values() for name in counterpart.names} <= options
    assert not FOREIGN_OPTIONS.keys() & {*property_names(), *BY_NAME}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("kafka.max.poll.records", NO_COUNTERPART),
        ("kafka.session.timeout.ms", "; its counterpart is 'zookeeper.session.timeout.ms'"),
        ("kafka.max.partition.fetch.bytes", "; its counterpart is 'fetch.message.max.bytes'"),
        ("kafka.enable.auto.commit", "; its counterpart is 'commitOffsets'"),
        ("kafka.value.deserializer", "; its counterpart is 'decoder'"),
        ("kafka.ssl.truststore.password", NO_COUNTERPART),
    ],
)
def test_spark_option_of_consumer_has_right_hint(name: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        SourceOptions.parse({**REQUIRED, "subscribe": "t", name: "1"})

    assert str(raised.value) == f"unknown property {name.removeprefix('kafka.')!r} in option {name!r}{hint}"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["watch", "--group", "g", "--once"], "unrecognized arguments: --once; its counterpart is --count 1"),
        (["watch", "--group", "g", "--zkconnect=h"], "--zkconnect=h; its counterpart is --zookeeper"),
        (["doctor", "--grup", "g"], "error: unrecognized arguments: --grup; did you mean --group?"),
        (["watch", "--grp=x"], "error: unrecognized arguments: --grp; did you mean --group?"),
        (
            ["export-offsets", "--output", "f", "--outputfile", "f"],
            "error: unrecognized arguments: --outputfile f; did you mean --output-file?",
        ),
        (["check-config", "--jsn"], "error: unrecognized arguments: --jsn; did you mean --json?"),
        (["console-consumer", "--tpic", "t"], "error: unrecognized arguments: --tpic; did you mean --topic?"),
        (["cluster", "produce", "--topik", "t"], "error: unrecognized arguments: --topik; did you mean --topic?"),
        (
            ["consumer-perf", "--zokeeper", "h", "--topik", "t"],
            "error: unrecognized arguments: --zokeeper --topik; did you mean --zookeeper?; did you mean --topic?",
        ),
        (
            ["watch", "--grp", "g", "--count", "0"],
            "error: unrecognized arguments: --grp; did you mean --group?\n"
            "argument --count: must be an integer of at least 1, got '0'",
        ),
        (["watch", "--count", "-1"], "error: argument --count: must be an integer of at least 1, got '-1'"),
        (["watch", "--group"], "error: argument --group: expected one argument"),
        (["--group", "g", "watch"], "unrecognized arguments: --group; options of a tool or action follow its name"),
        (
            ["--grp", "watch", "--group", "g"],
            "unrecognized arguments: --grp; options of a tool or action follow its name",
        ),
        (["-v", "--log-levl", "info", "watch"], "unrecognized arguments: --log-levl; did you mean --log-level?"),
        (["consumer-groups", "--zookeeper", "h", "--lst"], "; did you mean --list?"),
        (["wacth", "--group", "g"], "; did you mean watch?"),
        (["cluster", "upp"], "; did you mean up?"),
        (["watch", "--group", "g", "--qqq"], "unrecognized arguments: --qqq"),
    ],
)
def test_unknown_argument_has_right_hint(arguments: list[str], hint: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^2$"):
        main(arguments)

    assert capfd.readouterr().err.endswith(f"{hint}\n")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("group", "group.id"), ("auto.commit", None), ("fetch.max.byte", "fetch.max.bytes")],
)
def test_incomplete_name_is_completed_if_unambiguous(name: str, meant: str | None) -> None:
    assert suggest(name, property_names()) == meant
