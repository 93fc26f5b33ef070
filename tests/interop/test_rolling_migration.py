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
def test_a_jvm_group_is_replaced_its_offsets_move_and_all_goes_back_without_a_loss() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        stdin=subprocess.DEVNULL,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for place in ("both", "kafka", "zookeeper"):
        assert f"offsets are kept in {place}" in done.stdout
    found = re.search(r"([\d,]+) numbers written, 0 lost, ([\d,]+) read again", done.stdout)
    assert found
    print(found[0])
