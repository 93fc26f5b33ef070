"""Tests that the values of properties and options in messages and in the documentation are valid."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zkconsumer
from zkconsumer.config.properties import PROPERTIES
from zkconsumer.message import Endpoint
from zkconsumer.optional_packages import EXTRAS
from zkconsumer.spark.options.table import OPTIONS

_PACKAGE = Path(zkconsumer.__file__).parent
_DOCS = _PACKAGE.parent / "docs"

_TYPES: dict[str, Any] = {declared.name: declared.type for declared in (*PROPERTIES, *OPTIONS)}
#: The option ``columns`` is an ordinary word, too.
_NAMES = "|".join(sorted(map(re.escape, _TYPES.keys() - {"columns"}), key=len, reverse=True))

#: ``name=value``, ``name = value`` and ``set name to value``. The value is not the start of an expression or a name.
_ASSIGNED = re.compile(
    rf"(?<![\w.-])({_NAMES})(?: ?= ?| to )(?!the\b|which\b)([A-Za-z0-9][\w.-]*\w|\w)(?!\.?[\w(\[/:,{{-])"
)


def _texts() -> Iterator[tuple[str, str]]:
    """Yield each string of the package with its place, and each page of the documentation."""
    for path in sorted(_PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.name}:{node.lineno}", node.value
    for path in sorted(_DOCS.glob("*.rst")):
        yield path.name, path.read_text()


def test_install_commands_work_for_each_installation() -> None:
    """zkconsumer is not on PyPI, so a command must not name it. A checkout is installed by its path."""
    named = [
        (place, text) for place, text in _texts() if re.search(r"pip install (-\S+ )*['`\"]*zkconsumer\b(?!-)", text)
    ]
    assert not named


def test_install_commands_are_requirements_of_the_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(_PACKAGE.parent / "setup.cfg")
    declared = {name: lines.split() for name, lines in setup["options.extras_require"].items()}
    of_users = declared["all"][0].removeprefix("zkconsumer[").removesuffix("]").split(",")

    assert {name: sorted(declared[name]) for name in of_users} == {
        name: sorted(requirements.values()) for name, requirements in EXTRAS.items()
    }


def _assignments() -> list[tuple[str, str, str]]:
    return [(place, name, value) for place, text in _texts() for name, value in _ASSIGNED.findall(text)]


def test_values_in_messages_and_documentation_are_valid() -> None:
    found = _assignments()
    invalid = []
    for place, name, value in found:
        try:
            _TYPES[name].parse(value)
        except ValueError as error:
            invalid.append(f"{place}: {name} = {value} must be {error.args[0]}")
    assert len(found) > 50
    assert not invalid


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        (Endpoint("::1", 9092), "[::1]:9092"),
        (Endpoint("fe80::1%eth0", 9092), "[fe80::1%eth0]:9092"),
        (Endpoint("127.0.0.1", 9092), "127.0.0.1:9092"),
        (Endpoint("broker.example.", 9092), "broker.example.:9092"),
    ],
)
def test_endpoint_in_message_is_valid_address(endpoint: Endpoint, text: str) -> None:
    assert str(endpoint) == text
    assert Endpoint.parse(text) == endpoint
    assert _TYPES["bootstrap.servers"].parse(text) == text
    assert _TYPES["zookeeper.connect"].parse(text) == text


def test_messages_format_addresses_in_one_place() -> None:
    """An address that is put together elsewhere lacks the brackets of an IPv6 address."""
    composed = re.compile(r"\{[\w.]*(host|address|ip)\}:\{")
    found = [
        f"{path.relative_to(_PACKAGE)}: {line.strip()}"
        for path in sorted(_PACKAGE.rglob("*.py"))
        for line in path.read_text().splitlines()
        if composed.search(line)
    ]
    assert [line.partition(":")[0] for line in found] == ["message.py"]
