"""Links and code blocks in the documentation."""

from __future__ import annotations

import ast
import json
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from zkconsumer.config import ConsumerConfig
from zkconsumer.config.properties_file import parse_properties
from zkconsumer.tools.cli import argument_parser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.rst"), *DOCS.glob("*.rst"), *DOCS.glob("decisions/*.rst"), *ROOT.glob("examples/*.rst")])

#: Files in which decisions are implemented.
SOURCES = sorted(
    [path for path in (ROOT / "zkconsumer").rglob("*") if path.suffix in (".py", ".c", ".h")]
    + [ROOT / name for name in ("Makefile", "pyproject.toml", "setup.cfg", "setup.py")]
)

#: Labels of generated sections.
GENERATED = ("property-", "option-")

_INDENTED = r"((?:(?:\1[ ]{3,}.*)?\n)+)"


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code_blocks(path: Path, language: str) -> list[str]:
    """Return the code blocks of a language."""
    pattern = rf"^([ ]*)\.\. code-block:: {language}\n(?:[ ]+:.*\n)*\n{_INDENTED}"
    return [textwrap.dedent(found[2]) for found in re.finditer(pattern, path.read_text(), re.MULTILINE)]


def commands(path: Path) -> Iterator[list[str]]:
    """Yield the arguments of each call of ``zkconsumer`` in a literal block, without placeholders of a shell."""
    for found in re.finditer(rf"^([ ]*)(?:\S.*)?::\n\n{_INDENTED}", path.read_text(), re.MULTILINE):
        text = textwrap.dedent(found[2]).replace("\\\n", " ")
        for line in re.findall(r"(?:^|[|&] |\$\()(?:\$ )?(zkconsumer .*)", text, re.MULTILINE):
            words = shlex.split(line.rstrip(")"), comments=True)
            end = next((index for index, word in enumerate(words) if word in ("|", "||", ">", ">>", "&&")), None)
            yield words[1:end]


def labels() -> set[str]:
    return {label for page in PAGES for label in re.findall(r"^\.\. _([\w-]+):$", page.read_text(), re.MULTILINE)}


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_internal_links_have_targets(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r":doc:`(?:[^`<]*<)?([^`>]+)>?`", text) + re.findall(r":link: ([\w-]+)$", text, re.M):
        page = DOCS / f"{target.removeprefix('/')}.rst"
        assert page.exists() or (path.parent / f"{target}.rst").exists(), target
    for target in re.findall(r":ref:`(?:[^`<]*<)?([^`>]+)>?`", text):
        assert target in labels() or target.startswith(GENERATED), target
    for target in re.findall(r"<([\w./-]+\.rst)>`__", text):
        assert (ROOT / target).exists(), target


def test_readme_makefile_and_ci_name_the_same_commands() -> None:
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci" / "run").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert targets >= {target for page in PAGES for target in re.findall(r"``make ([a-z-]+)", page.read_text())}

    readme = (ROOT / "README.rst").read_text()
    first_screen = readme[: readme.index("Installation\n----")]
    assert re.findall(r"^    make ([a-z-]+)", first_screen, re.MULTILINE) == ["demo", "test"]
    assert re.findall(r"^exec (.*)", ci, re.MULTILINE) == ["make test"]


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_included_files_contain_the_lines(path: Path) -> None:
    pattern = r"^\.\. literalinclude:: (\S+)\n((?:[ ]+:.*\n)*)"
    for name, options in re.findall(pattern, path.read_text(), re.MULTILINE):
        included = (path.parent / name).read_text()
        for text in re.findall(r":(?:start|end)-(?:at|before|after): (.*)", options):
            assert text in included, f"{name} does not contain {text!r}"


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_python_blocks_compile(path: Path) -> None:
    for block in code_blocks(path, "python"):
        ast.parse(block)


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_properties_blocks_are_valid(path: Path) -> None:
    required = {"group.id": "g", "zookeeper.connect": "z"}
    for block in code_blocks(path, "properties"):
        given = parse_properties(block.encode())
        places = {name: value for name, value in given.items() if not name.endswith("location")}
        ConsumerConfig.from_dict({**required, **places}, strict=True)


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_json_blocks_are_valid(path: Path) -> None:
    for block in code_blocks(path, "json"):
        json.loads(block)


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_commands_have_valid_arguments(path: Path) -> None:
    parser = argument_parser()
    for arguments in commands(path):
        parser.parse_args(arguments)


def test_every_page_is_in_the_index() -> None:
    listed = set(re.findall(r"^   ([\w/-]+)$", (DOCS / "index.rst").read_text(), re.MULTILINE))
    assert {path.stem for path in DOCS.glob("*.rst")} - {"index"} <= listed


def test_architecture_names_existing_modules() -> None:
    named = set(re.findall(r"``([a-z_]+(?:/[a-z_]+)+)``", (DOCS / "architecture.rst").read_text()))
    assert len(named) > 50
    places = {name: [ROOT / "zkconsumer" / f"{name}.py", ROOT / "zkconsumer" / name, ROOT / name] for name in named}
    assert [name for name, paths in places.items() if not any(path.exists() for path in paths)] == []


def test_each_decision_is_named_where_it_is_implemented() -> None:
    texts = {relative(path): path.read_text() for path in SOURCES}
    named = {name: re.findall(r"See (docs/decisions/[\w-]+\.rst)\.", text) for name, text in texts.items()}
    pages = {relative(path) for path in DOCS.glob("decisions/[0-9]*.rst")}
    assert {page for found in named.values() for page in found} == pages
    others = {name for name, text in texts.items() if text.count("docs/decisions") != len(named[name])}
    assert not others, f"write 'See docs/decisions/<page>.rst.' on one line in {', '.join(others)}"


def test_blocks_and_commands_are_found() -> None:
    assert len(code_blocks(DOCS / "consumer.rst", "python")) >= 5
    assert ["doctor", "--group", "example"] in list(commands(DOCS / "command-line.rst"))
