"""GitHub workflows and pre-commit hooks, compared with the Makefile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"

#: Parts of commands that run a complete suite, a fuzzer or the mutation tool.
_LONG = re.compile(
    r'-m (?:slow|"slow or not slow"|tests\.fuzz|tests\.simulation|tests\.mutation)(?!\w)|scripts/spark_versions\.py'
)


def recipes() -> dict[str, str]:
    """Return the commands of each Makefile target."""
    return dict(re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def jobs(workflow: str) -> dict[str, dict[str, Any]]:
    return dict(yaml.safe_load((WORKFLOWS / workflow).read_text())["jobs"])


def commands(job: dict[str, Any]) -> list[str]:
    """Return the commands of a job, once for each value of its matrix."""
    found: list[str] = [step["run"] for step in job["steps"] if "run" in step]
    entries: list[dict[str, Any]] = job.get("strategy", {}).get("matrix", {}).get("include", [{}])
    return [set_variables(command, entry) for command in found for entry in entries]


def set_variables(command: str, entry: dict[str, Any]) -> str:
    """Replace the expressions of a command that name a variable of the matrix."""
    for name, value in entry.items():
        command = command.replace(f"${{{{ matrix.{name} }}}}", str(value))
    return command


def test_complete_suites_run_nightly() -> None:
    long_suites = {target for target, recipe in recipes().items() if _LONG.search(recipe)}
    assert long_suites >= {
        "faults",
        "spark-test",
        "spark-versions",
        "interop",
        "oracle",
        "fuzz",
        "simulate",
        "mutation",
    }
    nightly = [command.split() for job in jobs("nightly.yaml").values() for command in commands(job)]
    assert {target for make, target, *_ in nightly if make == "make"} == long_suites


def test_release_requires_wheels_and_tests() -> None:
    release = jobs("release.yaml")
    publishing = [job for job in release.values() if "write" in job["permissions"].values()]
    assert publishing
    for job in publishing:
        required = [command for needed in job["needs"] for command in commands(release[needed])]
        assert {"make test", "make wheel"} <= set(required)


def test_workflows_use_the_same_pinned_actions() -> None:
    texts = [path.read_text() for path in WORKFLOWS.glob("*.yaml")]
    used = {line for text in texts for line in re.findall(r"uses: (.*)", text)}
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", line) for line in used)
    assert len({line.split("@")[0] for line in used}) == len(used)


def test_jobs_have_time_limits() -> None:
    assert all("timeout-minutes" in job for path in WORKFLOWS.glob("*.yaml") for job in jobs(path.name).values())


def test_hooks_run_the_commands_of_lint() -> None:
    def words(command: str) -> str:
        return " ".join(word for word in command.split() if not word.startswith("-") and word != ".")

    lint = recipes()["lint"].replace("$(BIN)", ".venv/bin")
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert {words(hook["entry"]) for hook in hooks} == {words(line) for line in lint.splitlines()}
