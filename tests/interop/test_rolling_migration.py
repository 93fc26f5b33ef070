"""Run the example of a rolling migration and check its results."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "rolling_migration.py"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_rolling_migration_and_return_lose_nothing() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        stdin=subprocess.DEVNULL,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for storage in ("ZooKeeper and Kafka", "Kafka", "ZooKeeper"):
        assert f"offsets are stored in {storage}\n" in done.stdout
    found = re.search(r"([\d,]+) numbers produced, 0 lost, ([\d,]+) duplicates", done.stdout)
    assert found
    print(found[0])
