"""Tests of invalid arguments of the tools that print messages."""

from __future__ import annotations

import argparse
import ast
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.aliases import Run

import zkconsumer.tools
from zkconsumer.config.properties import property_table
from zkconsumer.tools import cluster_state, output
from zkconsumer.tools.catalogue import EXAMPLES, TOOLS, Tool, ToolGroup
from zkconsumer.tools.cli import argument_parser, main

Refused = Callable[..., str]
File = Callable[[bytes], str]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the following arguments are required: --zookeeper"),
        (["--topic", "t"], "the following arguments are required: --zookeeper"),
        (["--zookeeper", "127.0.0.1:1"], "one of the arguments --topic --whitelist --blacklist is required"),
        (["--zookeeper", "z", "--topic", "t", "--whitelist", "w"], "not allowed with argument --topic"),
        (["--zookeeper", "z", "--topic", "t", "--max-messages", "0"], "must be an integer of at least 1, got '0'"),
        (
            ["--zookeeper", "z", "--topic", "t", "--max-messages", "many"],
            "must be an integer of at least 1, got 'many'",
        ),
        (["--zookeeper", "z", "--topic", "t", "--whitlist", "t"], "unrecognized arguments: --whitlist t"),
        (["--zookeper", "z", "--topic", "t"], "error: unrecognized arguments: --zookeper; did you mean --zookeeper?"),
    ],
)
def test_wrong_usage_prints_usage(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^2$"):
        main(["console-consumer", *arguments])

    out, errors = capfd.readouterr()
    assert out == ""
    assert errors.startswith("usage: zkconsumer")
    assert said in errors


def test_missing_zookeeper_is_reported(refused: Refused, file: File) -> None:
    settings = file(b"zookeeper.connection.timeout.ms=300\n")
    started = time.monotonic()

    errors = refused("--zookeeper", "127.0.0.1:1", "--topic", "t", "--consumer.config", settings, exit_code=3)

    assert errors == (
        "zkconsumer console-consumer: could not connect to ZooKeeper at '127.0.0.1:1' within 0.3 s: 127.0.0.1:1 "
        "refused the connection; check zookeeper.connect and whether the ensemble is running\n"
    )
    assert time.monotonic() - started < 10


@pytest.fixture
def background_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function that pretends that a development cluster of a version is running."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = cluster_state.state_file()
    path.parent.mkdir()

    def write(kafka: str) -> None:
        state = {"supervisor": 1, "kafka": kafka, "zookeeper.connect": "127.0.0.1:7/a", "logs": str(tmp_path / "logs")}
        path.write_text(json.dumps({**state, "bootstrap.servers": "127.0.0.1:8"}))

    with cluster_state.supervising(path):
        yield write


@pytest.mark.parametrize(
    ("arguments", "kafka", "suggested"),
    [
        (["watch", "--group", "g", "--zookeeper", "127.0.0.1:1"], "3.9.2", "--zookeeper 127.0.0.1:7/a"),
        (
            ["doctor", "--group", "g", "--zookeeper", "127.0.0.1:1"],
            "4.4.0",
            "--zookeeper 127.0.0.1:7/a --bootstrap-server 127.0.0.1:8",
        ),
        (["offset-checker", "--group", "g", "--zookeeper", "127.0.0.1:1"], "3.9.2", "--zookeeper 127.0.0.1:7/a"),
        (
            ["export-offsets", "--output-file", "x", "--zkconnect", "127.0.0.1:1"],
            "3.9.2",
            "--zkconnect 127.0.0.1:7/a",
        ),
        (
            ["simple-consumer-shell", "--broker-list", "127.0.0.1:1", "--topic", "t"],
            "3.9.2",
            "--broker-list 127.0.0.1:8",
        ),
        (["watch", "--group", "g", "--zookeeper", "127.0.0.1:7/a"], "3.9.2", None),
    ],
    ids=["watch", "kraft", "offset checker", "export", "shell", "its own address"],
)
def test_running_development_cluster_is_suggested(
    arguments: list[str],
    kafka: str,
    suggested: str | None,
    background_cluster: Callable[[str], None],
    run: Run,
    file: File,
) -> None:
    background_cluster(kafka)

    code, out, errors = run(*arguments, "--command-config", file(b"zookeeper.connection.timeout.ms=300\n"))

    first, *others = errors.splitlines()
    assert (code, out) == (3, "")
    assert first.startswith(f"zkconsumer {arguments[0]}: ")
    text = f"    a development cluster is running; to use it: {suggested}"
    assert others == ([] if suggested is None else [text])


@pytest.mark.parametrize("address", ["no-such-host.invalid:2181", "127.0.0.1:no-port", "127.0.0.1:99999", " "])
def test_invalid_address_is_reported(address: str, refused: Refused, file: File) -> None:
    settings = file(b"zookeeper.connection.timeout.ms=300\n")

    exit_code = 3 if "no-such-host" in address else 2
    errors = refused("--zookeeper", address, "--topic", "t", "--consumer.config", settings, exit_code=exit_code)

    assert address in errors
    assert "zookeeper.connect" in errors


def test_from_beginning_contradicts_largest_reset(refused: Refused, file: File) -> None:
    settings = file(b"auto.offset.reset=largest\n")

    errors = refused("--zookeeper", "127.0.0.1:1", "--topic", "t", "--from-beginning", "--consumer.config", settings)

    assert errors == (
        "zkconsumer console-consumer: Can't simultaneously specify --from-beginning and "
        "'auto.offset.reset=largest', please remove one option\n"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"group.id=g\\u12\n", "is not a Java properties file"),
        (b"group.id=g\nauto.commit.enable=yes\n", "property 'auto.commit.enable' must be 'true' or 'false', got 'yes'"),
        (b"group.id=a group\n", "property 'group.id' must be a name that consists of ASCII letters"),
        (b"group.id=g\nauto.offset.reset=middle\n", "property 'auto.offset.reset' must be 'smallest' or"),
        (b"group.id=g\noffsets.storage=disk\n", "property 'offsets.storage' must be 'zookeeper' or"),
        (b"group.id=g\nfetch.message.max.bytes=1MB\n", "'fetch.message.max.bytes' must be an integer between 1"),
    ],
)
def test_invalid_properties_file_is_rejected(content: bytes, said: str, refused: Refused, file: File) -> None:
    assert said in refused("--zookeeper", "127.0.0.1:1", "--topic", "t", "--consumer.config", file(content))


@pytest.mark.parametrize("name", ["/missing.properties", "/"])
def test_unreadable_properties_file_is_reported(name: str, refused: Refused) -> None:
    errors = refused("--zookeeper", "127.0.0.1:1", "--topic", "t", "--consumer.config", name)

    assert f"cannot read the properties file '{name}'" in errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["console-consumer", "--zookeeper", "127.0.0.1:1", "--topic", "t"],
        ["simple-consumer-shell", "--broker-list", "127.0.0.1:1", "--topic", "t"],
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_closed_standard_output_is_reported(arguments: list[str]) -> None:
    """If the tool started, a socket could reuse the file descriptor of standard output and receive the messages."""
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "zkconsumer", *arguments],
        stderr=subprocess.PIPE, text=True, timeout=20, check=False,
    )  # fmt: skip

    assert done.stderr == f"zkconsumer {arguments[0]}: cannot write to standard output: it is closed\n"
    assert done.returncode == 1


@pytest.mark.parametrize("arguments", [["cluster", "status"], ["cluster", "status", "--json"]])
def test_full_disk_is_reported(arguments: list[str], tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "zkconsumer", *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=20, check=False, env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        )  # fmt: skip

    assert (done.returncode, done.stderr) == (
        1,
        "zkconsumer cluster: cannot write to standard output: No space left on device\n",
    )


@pytest.mark.parametrize("tool", ["console-consumer", "consumer-perf", "check-config", "update-offsets"])
def test_consumer_properties_are_listed_on_request(tool: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^0$"):
        main([tool, "--help-properties"])

    listed = re.findall(r"^  (\S+) \(", capfd.readouterr().out.partition("consumer properties")[2], re.MULTILINE)
    assert listed == [row.name for row in property_table()]


@pytest.mark.parametrize(
    ("arguments", "level"),
    [
        ([], "WARNING"),
        (["--log-level", "info"], "INFO"),
        (["-v"], "INFO"),
        (["-vv"], "DEBUG"),
        (["-v", "-v"], "DEBUG"),
        (["-q"], "ERROR"),
        (["--verbose", "-q"], "ERROR"),
    ],
)
@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_log_level_can_precede_or_follow_tool(
    arguments: list[str], level: str, is_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("zkconsumer.log.show_level", lambda number: shown.append(logging.getLevelName(number)))
    monkeypatch.setattr("zkconsumer.tools.cluster.run_java_home", lambda _: 0)
    tool = ["cluster", "java-home"]

    main([*arguments, *tool] if is_before else [*tool, *arguments])

    assert shown == [level]


def test_option_after_tool_overrides_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "zkconsumer.tools.cluster.run_java_home", lambda options: ["error", "debug"].index(options.log_level)
    )

    assert main(["-vv", "cluster", "java-home", "--log-level", "error"]) == 0
    assert main(["-q", "cluster", "-vv", "java-home"]) == 1


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        ("", "usage: zkconsumer [-h]"),
        ("-v", "usage: zkconsumer [-h]"),
        ("help", "usage: zkconsumer [-h]"),
        ("cluster", "usage: zkconsumer cluster [-h]"),
        ("help doctor", "usage: zkconsumer doctor [-h]"),
        ("help cluster up", "usage: zkconsumer cluster up [-h]"),
    ],
)
def test_help_is_printed_without_a_tool(arguments: str, start: str, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(arguments.split())
    except SystemExit as ended:
        code = int(ended.code or 0)

    out, errors = capfd.readouterr()
    assert (code, errors) == (0, "")
    assert out.startswith(start)


def test_help_lists_each_tool_in_its_group(capfd: pytest.CaptureFixture[str]) -> None:
    main([])

    sections = capfd.readouterr().out.split("\n\n")
    for group in ToolGroup:
        [section] = [text for text in sections if text.startswith(f"{group.value}:")]
        assert re.findall(r"^  ([a-z-]+)", section, re.M) == [tool.name for tool in TOOLS if tool.group is group]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_help_shows_valid_examples(tool: Tool, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^0$"):
        main([tool.name, "--help"])

    text = capfd.readouterr().out
    assert len(text.splitlines()) < 80, "the help text fits on a few screens"
    _, found, examples = text.partition("examples:\n")
    assert found
    commands = examples.replace("\\\n", " ").strip().splitlines()
    assert len(commands) == len(EXAMPLES[tool.name])
    for command in commands:
        program, *arguments = shlex.split(command.removeprefix('eval "$(').removesuffix(')"'))
        assert program == "zkconsumer"
        assert argument_parser().parse_args(arguments).tool == tool.name


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_description_starts_with_summary(tool: Tool) -> None:
    [parser] = [one for one in parsers(argument_parser()) if one.prog == f"zkconsumer {tool.name}"]

    assert (parser.description or "").startswith(f"{tool.summary}.")


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


@pytest.mark.parametrize("parser", list(parsers(argument_parser())), ids=lambda parser: parser.prog)
def test_help_fits_in_eighty_columns(parser: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert [line for line in parser.format_help().splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_during_imports_is_quiet(number: signal.Signals) -> None:
    """The interrupt arrives when the first module of the package is imported."""
    code = (
        "import os, runpy, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == 'zkconsumer.tools.cli': os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv = ['zkconsumer', 'cluster', 'status']\n"
        "runpy.run_module('zkconsumer', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


_SIGNALLED = """
import os, signal, sys
from zkconsumer import __main__
from zkconsumer.tools import cli

def main():
    try:
        for number in sys.argv[1:]:
            os.kill(os.getpid(), int(number))
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) * 3:
            os.kill(os.getpid(), number)
        print("cleaned up")
    return 3

cli.main = main
sys.exit(__main__.run())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_exit_code_is_that_of_first_signal(number: signal.Signals) -> None:
    command = [sys.executable, "-c", _SIGNALLED, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "cleaned up\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signals_ignored_at_start_stay_ignored(number: signal.Signals) -> None:
    """``nohup`` and a shell's background jobs ignore them."""
    code = f"import signal; signal.signal({int(number)}, signal.SIG_IGN)\n{_SIGNALLED}"
    command = [sys.executable, "-c", code, str(int(number)), str(int(signal.SIGTERM))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "cleaned up\n", "")


def test_package_imports_nothing_before_command_handles_interrupts() -> None:
    code = "import sys, zkconsumer.__main__; print(sorted(name for name in sys.modules if 'kazoo' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "[]\n"


# ---- output -----------------------------------------------------------------------------------------


def test_tools_print_through_one_function() -> None:
    """``output.echo`` escapes control characters, which text from znodes can contain."""
    folder = Path(zkconsumer.tools.__file__).parent
    calls = [
        f"{path.name}:{node.lineno}"
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]

    assert {call.partition(":")[0] for call in calls} == {"output.py"}, calls


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("plain é 漢", "plain é 漢"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x9b1m\u2028\u202e\ud800", r"\x9b1m\u2028\u202e\ud800"),
    ],
)
def test_control_characters_are_escaped(text: str, printed: str, capfd: pytest.CaptureFixture[str]) -> None:
    output.echo(text)

    assert capfd.readouterr().out == printed + "\n"


def test_closed_pipe_of_earlier_call_is_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "output").open("w") as file, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", file)
        with output.writing():
            raise BrokenPipeError
        assert output.is_closed()

    main([])

    assert not output.is_closed()
