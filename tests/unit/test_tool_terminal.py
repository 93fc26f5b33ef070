"""Tests of the output of tools on a terminal."""

from __future__ import annotations

import argparse
import random
import re

import pytest

from zkconsumer.health import HealthReason, HealthState
from zkconsumer.message import TopicPartition
from zkconsumer.tools import doctor, output, terminal
from zkconsumer.tools.findings import Finding, assess_health
from zkconsumer.tools.group_state import GroupState

OPTIONS = argparse.Namespace(json=False)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let standard output be a terminal of 80 columns."""
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.usefixtures("screen")
@pytest.mark.parametrize("seed", range(20))
def test_tables_fit_and_never_truncate(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(seed)
    columns = [f"COLUMN{number}" for number in range(draw.randint(1, 8))]
    is_number = [draw.random() < 0.6 for _ in columns]
    row = [
        str(draw.randrange(10 ** draw.randint(1, 10)))
        if number
        else "".join(draw.choices("abc-.", k=draw.randint(1, 200)))
        for number in is_number
    ]

    output.print_table(columns, [row])

    lines = plain(capfd.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 80, seed
    assert not set("…│┃━─") & set("".join(lines))
    shown = sorted("".join(lines).replace(" ", ""))
    assert shown == sorted("".join(columns + row)), f"seed {seed}: each character is printed once"


@pytest.mark.usefixtures("screen")
def test_numbers_are_not_folded_if_there_is_space(capfd: pytest.CaptureFixture[str]) -> None:
    output.print_table(("TOPIC", "OFFSET", "OWNER"), [("t" * 100, 1234567890, "o" * 100)])

    assert " 1234567890 " in plain(capfd.readouterr().out)


@pytest.mark.usefixtures("screen")
def test_text_of_znodes_is_not_markup(capfd: pytest.CaptureFixture[str]) -> None:
    output.print_table(("[red]T",), [("[red]x[/nothing]\x1b[2J",)])

    assert plain(capfd.readouterr().out).split() == ["[red]T", r"[red]x[/nothing]\x1b[2J"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only(
    is_terminal: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)

    for step in terminal.count_steps("groups", ["a", "b", "c"]):
        output.echo(step)

    out, errors = capfd.readouterr()
    assert out == "a\nb\nc\n", "standard output can be a file"
    assert ("groups" in plain(errors)) == is_terminal
    if is_terminal:
        assert "3/3" in plain(errors)


def doctor_lines(*findings: Finding) -> list[str | output.Line]:
    return list(doctor._lines(GroupState("g"), assess_health(findings), findings))


STALLED = Finding("has no owner", "partition t-0", "restart", "rebalance_failed", (TopicPartition("t", 0),))
REBALANCING = Finding("is claimed", "partition t-1", "wait", "rebalancing")
UNUSED = Finding("an offset is negative", "partition t-2", "delete it")


def test_doctor_prints_verdict_first() -> None:
    first, second, *others = doctor_lines(UNUSED, STALLED)

    assert isinstance(first, output.Line)
    assert first.text.startswith("health: stalled (rebalance_failed: t-0; since ")
    assert second == "group g: 0 members, 0 partitions owned: 2 problems found"
    assert others[::2] == [
        output.Line("partition t-2: an offset is negative", terminal.Severity.WARNING),
        output.Line("partition t-0: has no owner", terminal.Severity.ERROR),
    ]


@pytest.mark.usefixtures("screen")
@pytest.mark.parametrize(
    ("findings", "color"), [((), "32"), ((UNUSED,), "32"), ((REBALANCING,), "33"), ((STALLED, UNUSED), "1;31")]
)
def test_health_is_colored_by_severity(
    findings: tuple[Finding, ...], color: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output.report(OPTIONS, {}, doctor_lines(*findings))
    assert capfd.readouterr().out.startswith(f"\x1b[{color}mhealth: ")

    monkeypatch.setenv("NO_COLOR", "1")
    output.report(OPTIONS, {}, doctor_lines(*findings))
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", capfd.readouterr().out)


def test_output_without_terminal_has_no_colors(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    output.report(OPTIONS, {}, doctor_lines(STALLED))

    assert "\x1b" not in capfd.readouterr().out


def test_each_health_state_has_a_severity() -> None:
    for state in HealthState:
        reason = HealthReason(state, "code", 0.0, "text", frozenset())
        line = next(iter(doctor._lines(GroupState("g"), assess_health(()).of([reason] if state else []), ())))
        assert isinstance(line, output.Line)
        expected = {HealthState.HEALTHY: terminal.Severity.GOOD, HealthState.REBALANCING: terminal.Severity.WARNING}
        assert line.severity is expected.get(state, terminal.Severity.ERROR)
