"""Exit codes of the tools, and the JSON objects of their errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.aliases import Run

from zkconsumer import errors
from zkconsumer.errors import ZkConsumerError
from zkconsumer.tools.cli import main
from zkconsumer.tools.failures import ExitCode

DOCS = Path(__file__).parents[2] / "docs"

#: Tools that connect to a server, with an address at which no server listens.
CONNECTING = {
    "console-consumer": "--zookeeper 127.0.0.1:1 --topic t --consumer.config FILE",
    "consumer-perf": "--zookeeper 127.0.0.1:1 --topic t --messages 1 --consumer.config FILE",
    "consumer-groups --list": "--zookeeper 127.0.0.1:1 --command-config FILE",
    "consumer-groups --describe": "--zookeeper 127.0.0.1:1 --group g --command-config FILE",
    "consumer-groups --delete": "--zookeeper 127.0.0.1:1 --group g --command-config FILE",
    "offset-checker": "--zookeeper 127.0.0.1:1 --group g --command-config FILE",
    "doctor": "--zookeeper 127.0.0.1:1 --group g --command-config FILE",
    "watch": "--zookeeper 127.0.0.1:1 --group g --command-config FILE",
    "verify-rebalance": "--zookeeper.connect 127.0.0.1:1 --group g --command-config FILE",
    "migrate-offsets": "--zookeeper 127.0.0.1:1 --group g --to kafka --command-config FILE",
    "export-offsets": "--zkconnect 127.0.0.1:1 --output-file OUT --command-config FILE",
    "import-offsets": "--zkconnect 127.0.0.1:1 --input-file OFFSETS --command-config FILE",
    "update-offsets": "earliest FILE t",
    "simple-consumer-shell": "--broker-list 127.0.0.1:1 --topic t",
}

#: Invalid command lines: of the parser, and of checks that a tool makes before it connects.
WRONG = [
    "watch",
    "watch --group g --count 0",
    "watch --group g --whatever",
    "check-config",
    "check-config none.properties",
    "consumer-groups --zookeeper h --describe",
    "consumer-groups --zookeeper h --delete",
    "doctor --group g --zookeeper h:port",
    "doctor --group g --command-config none.properties",
    "migrate-offsets --group g --to kafka --from kafka",
    "import-offsets --input-file none",
    "update-offsets earliest none.properties t",
    "simple-consumer-shell --broker-list h:1 --topic t --offset -7",
    "console-consumer --zookeeper h --topic t --consumer-property auto.commit.enable=maybe",
]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    settings = "zookeeper.connect=127.0.0.1:1\ngroup.id=g\nzookeeper.connection.timeout.ms=200\n"
    Path("FILE").write_text(settings)
    Path("OFFSETS").write_text("/consumers/g/offsets/t/0:7\n")


@pytest.fixture
def run_any(run: Run, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a tool; also return if the parser exits."""

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            return run(*arguments)
        except SystemExit as ended:
            return int(ended.code or 0), *capfd.readouterr()

    return call


@pytest.mark.parametrize("tool", CONNECTING)
def test_unreachable_server_has_its_own_exit_code(tool: str, run: Run) -> None:
    arguments = f"{tool} {CONNECTING[tool]}".split()

    code, out, text = run(*arguments)
    assert (code, out) == (ExitCode.UNDETERMINED, "")
    assert text.startswith(f"zkconsumer {arguments[0]}: ")

    code, out, _ = run(*arguments, "--json")
    assert code == ExitCode.UNDETERMINED
    [line] = out.splitlines()
    error = json.loads(line)["error"]
    assert f"zkconsumer {arguments[0]}: {error['message']}\n" == text
    assert error["type"] in ("ZooKeeperUnavailableError", "BrokerUnavailableError")
    assert error["retriable"] is True


@pytest.mark.parametrize("arguments", WRONG)
def test_invalid_arguments_are_usage_errors(arguments: str, run_any: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run_any(*arguments.split())
    assert (code, out) == (ExitCode.USAGE, "")

    code, out, text = run_any(*arguments.split(), "--json")
    assert code == ExitCode.USAGE
    error = json.loads(out)["error"]
    assert error["message"] in text
    assert error["type"] in ("UsageError", "ConfigurationError")
    assert error["retriable"] is False


def subclasses(of: type[ZkConsumerError]) -> Iterator[type[ZkConsumerError]]:
    for one in of.__subclasses__():
        if one.__module__ == errors.__name__:
            yield one
            yield from subclasses(one)


@pytest.mark.parametrize(
    "kind",
    dict.fromkeys([ZkConsumerError, *subclasses(ZkConsumerError)]),  # without repetitions
    ids=lambda kind: str(kind.__name__),
)
def test_exit_code_depends_on_class_of_error(kind: type[ZkConsumerError]) -> None:
    problems = {
        *("ZkConsumerError", "OwnershipLostError", "RegistrationError", "AssignmentError", "CorruptRecordError"),
        *("MessageStreamsExistError", "OffsetOutOfRangeError", "MessageSizeTooLargeError", "ConsumerTimeoutError"),
        *("TopologyError", "StreamsError", "RecordRejectedError", "ProducerFencedError", "ProducerFailedError"),
    }
    expected = ExitCode.PROBLEM if kind.__name__ in problems else ExitCode.UNDETERMINED
    if kind is errors.ConfigurationError:
        expected = ExitCode.USAGE

    assert ExitCode.of(kind("text")) is expected


def test_documentation_lists_all_exit_codes() -> None:
    table = re.findall(r"^([0-9]+) {2,}\S", (DOCS / "command-line.rst").read_text(), re.MULTILINE)

    assert [int(code) for code in table] == list(ExitCode)


def test_interrupt_has_exit_code_of_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("zkconsumer.tools.check_config.run", interrupt)

    assert main(["check-config", "FILE"]) == 130
