"""Tests of the mutation tool: a killed and a surviving mutant, and which mutants it finds."""

from __future__ import annotations

import time
from pathlib import Path
from textwrap import dedent

import pytest
from mutation.__main__ import EQUIVALENT, ROOT, draw, read_reasons, table
from mutation.mutants import Mutant, find_mutants
from mutation.runner import BrokenTestsError, Outcome, Project, run_mutants
from mutation.targets import TESTS


def mutants_of(source: str) -> list[Mutant]:
    return find_mutants("m.py", dedent(source).encode())


def changes(source: str) -> list[str]:
    return [mutant.name.partition(": ")[2] for mutant in mutants_of(source)]


def project(root: Path, *, expected: int = 3) -> Project:
    """Create a project whose test looks at one of two functions, and return it."""
    (root / "sample").mkdir(parents=True)
    (root / "sample" / "__init__.py").touch()
    (root / "sample" / "m.py").write_text("def tested():\n    return 2 + 1\n\n\ndef untested():\n    return 2 - 1\n")
    (root / "test_m.py").write_text(
        f"from sample.m import tested\n\n\ndef test_sum():\n    assert tested() == {expected}\n"
    )
    return Project(root, "sample", {"m.py": ["test_m.py"]})


def test_killed_and_surviving_mutants_are_distinguished(tmp_path: Path) -> None:
    found = find_mutants("m.py", (project(tmp_path / "project").root / "sample" / "m.py").read_bytes())
    sums = [mutant for mutant in found if " + " in mutant.name or " - " in mutant.name]

    results = run_mutants(
        project(tmp_path / "other"), sums, directory=tmp_path / "copies", workers=2, deadline=time.monotonic() + 60
    )

    assert {mutant.name: outcome for mutant, outcome in results.items()} == {
        "m.py tested: 2 + 1 -> 2 - 1": Outcome.KILLED,
        "m.py untested: 2 - 1 -> 2 + 1": Outcome.SURVIVED,
    }
    assert table(results).splitlines()[-1].split() == ["total", "2", "1", "0", "1", "0"]


def test_failing_tests_are_reported(tmp_path: Path) -> None:
    broken = project(tmp_path / "project", expected=4)
    with pytest.raises(BrokenTestsError, match=r"the tests of m\.py fail without a mutant"):
        run_mutants(broken, mutants_of("1 + 1"), directory=tmp_path / "copies", workers=1, deadline=0)


def test_mutated_source_has_one_change() -> None:
    source = 'def f(a, b):\n    """Text."""\n    return "é" if a < b else g(a, b)\n'
    mutated = [mutant.apply(source.encode()).decode() for mutant in find_mutants("m.py", source.encode())]
    assert [one.splitlines()[2:] for one in mutated] == [
        ["    return", '    return "é" if a < b else g(a, b)'],
        ['    return "é" if (a <= b) else g(a, b)'],
        ['    return "é" if a < b else (g(b, a))'],
    ]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("if a and not b: c()", ["a and (not b) -> a or not b", "not b -> b", "c() -> pass"]),
        ("while a: break", ["a -> not (a)", "break -> continue"]),
        ("for a in b: continue", ["continue -> break"]),
        ("a.b = max(c, 0)", ["a.b = max(c, 0) -> pass", "max -> min", "0 -> 1"]),
        ("a = True, 0.5", ["True -> False", "0.5 -> 1.0"]),
        ("a += 1", ["a += 1 -> pass", "1 -> 2"]),
        ("raise E(f'{a + 1}')", ["raise E(f'{a + 1}') -> pass"]),
        ("self._log.info('x', a=b + 1)", []),
        ("a: int | None = b", []),
        ("assert a < b", []),
    ],
)
def test_statement_has_expected_mutants(statement: str, expected: list[str]) -> None:
    begin = "return at the beginning"
    assert [change for change in changes(f"def f():\n    x = y\n    {statement}\n") if change != begin] == expected


def test_handler_of_exception_can_raise_it_again() -> None:
    found = mutants_of(
        """
        def f():
            try:
                g()
            except KeyError:
                return None
        """
    )
    assert "m.py f: except KeyError -> raise again" in [mutant.name for mutant in found]


def test_equal_changes_of_a_function_have_different_names() -> None:
    assert changes("a = [1, 1]") == ["1 -> 2", "1 -> 2 (2)"]


def test_sample_depends_on_seed_only() -> None:
    found = [Mutant("zookeeper/m.py", str(n), 1, 0, 0, "") for n in range(50)]
    assert draw(found, 10, 1) == draw(found, 10, 1) != draw(found, 10, 2)
    assert len(draw(found, 10, 1)) == 10


def test_reasons_are_read_by_name_of_mutant() -> None:
    text = "# comment\nm.py f: a -> b\n  first\n  second\nm.py g: c -> d\n  third\n"
    assert read_reasons(text) == {"m.py f: a -> b": "first second", "m.py g: c -> d": "third"}


def test_equivalent_mutants_exist() -> None:
    found = {
        mutant.name for module in TESTS for mutant in find_mutants(module, (ROOT / "zkconsumer" / module).read_bytes())
    }

    assert read_reasons(EQUIVALENT.read_text()).keys() <= found
