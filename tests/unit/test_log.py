"""Tests of the default handler, which shows warnings in processes that have not configured logging."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Unpack

import pytest

from zkconsumer.log import KAZOO, DefaultHandler, EventValues, get_logger
from zkconsumer.tools.cli import main

WARN = "get_logger('zkconsumer.test', group='g').warning('topics_missing', topics=['orders'])"
TEXT = "event='topics_missing' group='g' topics=['orders']"
SHOWN = f"WARNING zkconsumer.test: {TEXT}"


def run(*statements: str) -> tuple[str, list[str]]:
    """Run statements in a process of their own; return its output, and the lines on standard error without times."""
    code = "; ".join(("import logging, sys, structlog", *statements))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout, [re.sub(r"^[-0-9]+ [:,0-9]+ ", "", line) for line in done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("statements", "output", "errors"),
    [
        pytest.param((WARN,), "", [SHOWN], id="unconfigured"),
        pytest.param((WARN.replace("warning", "info"),), "", [], id="info"),
        pytest.param(
            (
                "from zkconsumer import ConsumerConfig",
                "ConsumerConfig.from_dict({'group.id': 'g', 'zookeeper.connect': 'z', 'auto.ofset.reset': 'smallest'})",
            ),
            "",
            [
                "WARNING zkconsumer.config: event='property_unknown' property='auto.ofset.reset' "
                "remedy=\"did you mean 'auto.offset.reset'?\""
            ],
            id="misspelled property",
        ),
        pytest.param((f"logging.getLogger('{KAZOO}').warning('Connection dropped')",), "", [], id="kazoo"),
        pytest.param(
            ("logging.basicConfig(format='APP %(message)s')", WARN), "", [f"APP {TEXT}"], id="configured after import"
        ),
        pytest.param(
            (
                "handler = logging.StreamHandler(sys.stdout)",
                "logging.getLogger('zkconsumer').addHandler(handler)",
                WARN,
                "logging.getLogger('zkconsumer').removeHandler(handler)",
                WARN,
            ),
            f"{TEXT}\n",
            [SHOWN],
            id="handler of zkconsumer for a while",
        ),
        pytest.param(
            ("logging.getLogger('zkconsumer').addHandler(logging.NullHandler())", WARN), "", [], id="silenced"
        ),
        pytest.param(
            (
                "structlog.configure(processors=[structlog.processors.JSONRenderer()], "
                "logger_factory=structlog.PrintLoggerFactory(sys.stdout))",
                WARN,
            ),
            '{"group": "g", "topics": ["orders"], "event": "topics_missing"}\n',
            [],
            id="structlog",
        ),
        pytest.param(
            (
                "from zkconsumer.log import show_level",
                "show_level(logging.DEBUG)",
                f"logging.getLogger('{KAZOO}').warning('Connection dropped')",
                WARN.replace("warning", "debug"),
            ),
            "",
            [f"WARNING {KAZOO}: Connection dropped", SHOWN.replace("WARNING", "DEBUG")],
            id="level debug",
        ),
    ],
)
def test_warnings_reach_stderr_unless_logging_is_configured(
    statements: tuple[str, ...], output: str, errors: list[str]
) -> None:
    assert run("from zkconsumer.log import get_logger", *statements) == (output, errors)


def test_logging_configured_before_import_shows_events_once() -> None:
    assert run(
        "logging.basicConfig(format='APP %(message)s', level='INFO')",
        "from zkconsumer.log import get_logger, show_level",
        "show_level(logging.DEBUG)",
        WARN,
        WARN.replace("warning", "debug"),
    ) == ("", [f"APP {TEXT}"])


def test_configured_logging_receives_every_repetition(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("zkconsumer.test", group="g")
    for attempt in range(3):
        log.warning("rebalance_failed", attempt=attempt, error="x")

    assert caplog.messages == [f"event='rebalance_failed' group='g' attempt={n} error='x'" for n in range(3)]


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> Iterator[Callable[..., Any]]:
    """Return a function that returns loggers whose only handler is a default handler."""
    handler = DefaultHandler(clock)
    created: list[logging.Logger] = []

    def make(**context: Unpack[EventValues]) -> Any:
        name = f"zkconsumer.test{uuid.uuid4().hex}"
        created.append(logging.getLogger(name))
        created[-1].propagate = False
        created[-1].addHandler(handler)
        return get_logger(name, **context)

    yield make
    for logger in created:
        logger.removeHandler(handler)


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the events on standard error, without time, level and logger."""
    return [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines()]


def test_repeated_warning_is_shown_once_a_minute(
    log: Callable[..., Any], clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = log(group="g")
    for attempt in range(5):
        logger.error("rebalance_failed", attempt=attempt, error="no leader")
    assert shown(capsys) == ["event='rebalance_failed' group='g' attempt=0 error='no leader'"]

    clock.now += 59.9
    logger.error("rebalance_failed", attempt=5, error="no leader")
    assert shown(capsys) == []

    clock.now += 0.2
    logger.error("rebalance_failed", attempt=6, error="no leader")
    assert shown(capsys) == ["event='rebalance_failed' group='g' attempt=6 error='no leader' (repeated 5 times)"]


def test_changed_warning_is_shown_at_once(log: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    logger = log()
    events: list[dict[str, object]] = [
        {"topic": "a", "partition": 0, "error": "x"},
        {"topic": "a", "partition": 1, "error": "x"},
        {"topic": "b1", "partition": 1, "error": "x"},
        {"topic": "b2", "partition": 1, "error": "x"},
        {"topic": "b2", "partition": 1, "error": "y"},
    ]
    for _ in range(3):
        for event in events:
            logger.warning("offset_lookup_failed", **event)

    assert len(shown(capsys)) == len(events)


def test_number_of_errors_shown_per_minute_is_bounded(
    log: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    logger = log()
    for offset in range(100):
        logger.warning("records_lost", error=f"offset {offset} was deleted")

    assert len(shown(capsys)) == 10


def test_number_of_remembered_warnings_is_bounded(
    log: Callable[..., Any], clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = log()
    for partition in range(3000):
        clock.now += 0.001
        logger.warning("offset_lookup_failed", topic="a", partition=partition)
    assert len(shown(capsys)) == 3000

    logger.warning("offset_lookup_failed", topic="a", partition=2999)
    logger.warning("offset_lookup_failed", topic="a", partition=0)
    assert shown(capsys) == ["event='offset_lookup_failed' topic='a' partition=0"]
    [handler] = logging.getLogger(logger._logger.name).handlers
    assert isinstance(handler, DefaultHandler)
    assert len(handler._shown) == 1000


def test_control_characters_are_escaped(log: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        log().error("fetch_failed", error="\x1b[31m\nforged", exc_info=True)

    assert "\x1b" not in (errors := capsys.readouterr().err)
    assert errors.count("\n") == 1


def test_closed_standard_error_is_tolerated(log: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)

    log().warning("fetch_failed")


@pytest.mark.parametrize("tool", ["console-consumer", "watch", "doctor", "consumer-perf", "cluster"])
def test_tools_reject_unknown_log_level(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^2$"):
        main([tool, "--log-level", "loud"])

    assert "argument --log-level: invalid choice: 'loud'" in capsys.readouterr().err
