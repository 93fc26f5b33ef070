"""Tests of the registration with a Spark session."""

from __future__ import annotations

import logging
import shutil
import sys

import pytest

from zkconsumer.spark import session


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
