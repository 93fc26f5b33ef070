"""The tool ``check-config``."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from zkconsumer.tools.cli import main

DOCS = Path(__file__).parents[2] / "docs"
VALID = b"group.id=orders\nzookeeper.connect=zk1:2181\n"

Run = Callable[..., tuple[int, str, str]]


def test_valid_file_shows_values_of_each_line(run: Run, file: Callable[[bytes], str]) -> None:
    secrets = b"sasl.username=u\nsasl.password=p\n"
    path = file(VALID + b"check.crcs = true\nsasl.mechanisms=plain\nsecurity.protocol=sasl_plaintext\n" + secrets)

    code, output, errors = run("check-config", path)

    rows = [line.split() for line in output.splitlines()]
    assert (code, errors) == (0, "")
    assert rows[0] == ["LINE", "PROPERTY", "VALUE", "BECOMES"]
    assert ["3", "check.crcs", "true", "true"] in rows
    assert ["4", "sasl.mechanisms", "plain", "PLAIN"] in rows
    assert output.endswith(f"{path}: valid\n")


def test_all_problems_have_line_numbers(run: Run, file: Callable[[bytes], str]) -> None:
    path = file(b"# comment\ngroup.id=a b\nfetch.mesage.max.bytes=1\nauto.offset.reset=\\\n  earliest\n")

    code, output, _ = run("check-config", path)

    places = re.findall(rf"^{path}(?::(\d+))?: (\w+)", output, re.MULTILINE)
    assert code == 1
    assert places == [("", "Missing"), ("2", "property"), ("3", "unknown"), ("4", "property"), ("", "4")]


def test_json_has_lines_and_problems(run: Run, file: Callable[[bytes], str]) -> None:
    path = file(VALID + b"group.id=payments\nmirror.topics.whitelist=a\nzk.connect=b\n")

    code, output, errors = run("check-config", path, "--json")
    content = json.loads(output)

    assert (code, errors) == (1, "")
    assert (content["file"], content["valid"]) == (path, False)
    assert [line["becomes"] for line in content["lines"]][:3] == [
        "ignored: overridden by line 3",
        "zk1:2181",
        "payments",
    ]
    assert content["lines"][3]["becomes"].startswith("ignored: ")
    assert [problem["line"] for problem in content["problems"]] == [5]


@pytest.mark.parametrize(
    "name", ["sasl.password", "zookeeper.auth.digest", "ssl.truststore.password", "sasl.jaas.config"]
)
def test_secrets_are_masked(name: str, run: Run, file: Callable[[bytes], str]) -> None:
    path = file(VALID + f"{name}=user:hunter2\n".encode())

    for arguments in ([], ["--json"]):
        _, output, errors = run("check-config", path, *arguments)
        assert "hunter2" not in output + errors
        assert "********" in output


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (VALID.decode().encode("utf-16"), ": not a Java properties file: line 1 contains a NUL byte"),
        (VALID + b"consumer.id=\\u12\n", ": not a Java properties file: "),
        (codecs.BOM_UTF8 + VALID + b"consumer.id=\xfc\n", ": not a Java properties file: line 3 is not valid UTF-8, "),
        (b"# nothing\n", ": the file contains no properties"),
        (b"", ": the file contains no properties"),
    ],
    ids=["utf-16", "escape", "mark", "comments", "empty"],
)
def test_unusable_content_is_one_sentence(content: bytes, problem: str, run: Run, file: Callable[[bytes], str]) -> None:
    path = file(content)

    code, output, errors = run("check-config", path)

    assert (code, errors) == (1, "")
    assert output.startswith(path + problem)
    assert output.endswith(f"\n{path}: 1 problem found\n")
    assert output.count("\n") == 2


@pytest.mark.parametrize(
    ("path", "reason"), [("missing.properties", "No such file or directory"), (".", "Is a directory")]
)
def test_unreadable_file_is_usage_error(path: str, reason: str, run: Run) -> None:
    assert run("check-config", path) == (2, "", f"zkconsumer check-config: cannot read '{path}': {reason}\n")


def test_empty_value_is_shown(run: Run, file: Callable[[bytes], str]) -> None:
    code, output, _ = run("check-config", file(VALID + b"client.id=\n"))

    assert code == 0
    assert re.search(r"3 +client\.id +\(empty\)\n", output)


def test_missing_argument_is_usage_error() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["check-config"])


def test_sample_output_of_docs_is_real(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [sample] = re.findall(
        r"    \$ zkconsumer check-config .*\n((?:    .*\n)+)", (DOCS / "command-line.rst").read_text()
    )
    lines = ["zookeeper.connect=zk1:2181/kafka", "group.id=orders", "auto.offset.reset=earliest"]
    lines += ["enable.auto.commit=false", "zookeeper.auth.digest=u:p"]
    monkeypatch.chdir(tmp_path)
    Path("old.properties").write_text("\n".join(lines))

    code, output, _ = run("check-config", "old.properties")

    assert code == 1
    assert output.split() == sample.split()
