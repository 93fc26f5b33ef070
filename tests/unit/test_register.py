"""Tests of the registration with a Spark session."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys

import pytest

from zkconsumer.spark import compat, session


@pytest.mark.parametrize(
    ("version", "count"), [((4, 0), 0), (compat.LATEST_TESTED, 0), ((4, compat.LATEST_TESTED[1] + 1), 1), ((5, 0), 1)]
)
def test_later_version_of_spark_is_reported(
    caplog: pytest.LogCaptureFixture, version: tuple[int, ...], count: int
) -> None:
    session._check_version(version)

    assert caplog.text.count("event='spark_version_not_tested'") == count


#: Programs that make an import fail as without pyspark, and as with Spark 3.
_MISSING = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Finder())
"""
_OLD = """
sys.modules["pyspark"] = types.ModuleType("pyspark")
sys.modules["pyspark"].__path__ = []
sys.modules["pyspark"].__version__ = "3.5.8"
"""


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        (_MISSING, "requires pyspark, which is not installed; run `pip install 'pyspark"),
        (_OLD, "requires Spark 4.0 or later, but an older pyspark is installed; run `pip install 'pyspark"),
    ],
    ids=["missing", "old"],
)
@pytest.mark.parametrize("name", ["register", "StreamsApp", "ZkConsumerDataSource"])
def test_missing_or_old_spark_is_named(name: str, setup: str, message: str) -> None:
    program = f"import sys, types\n{setup}\nimport zkconsumer.spark\nzkconsumer.spark.{name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert f"ModuleNotFoundError: zkconsumer.spark.{name} {message}" in done.stderr


def warnings(caplog: pytest.LogCaptureFixture, executable: str) -> list[str]:
    with caplog.at_level(logging.WARNING, "zkconsumer"):
        session._check_worker_python(executable)
    return [record.getMessage() for record in caplog.records]


def test_other_python_of_workers_is_reported(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _name: "/usr/bin/python3")

    [message] = warnings(caplog, "python3")

    assert "/usr/bin/python3" in message
    assert f"set PYSPARK_PYTHON to {sys.executable}" in message


def test_missing_python_of_workers_is_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)

    assert "no-such-python" in warnings(caplog, "no-such-python")[0]


def test_same_or_selected_python_is_not_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert warnings(caplog, sys.executable) == []
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert warnings(caplog, "/opt/python") == []
