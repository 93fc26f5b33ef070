"""When, where and with which version results were measured."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[1]
_L2 = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")


def describe_place() -> str:
    """Return the time, the hardware, the Python version and the commit, as the title of a table."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = next((x.split(":")[1].strip() for x in cpuinfo.read_text().splitlines() if "model name" in x), model)
    cache = f" with {_L2.read_text().strip()} of L2 cache" if _L2.exists() else ""
    commit = _git("rev-parse", "--short=8", "HEAD")
    changed = ", changed" if _git("status", "--porcelain", "--", "zkconsumer") else ""
    cores = f"{os.cpu_count()} cores{cache}, shared with the brokers"
    return f"{time.strftime('%F %R')}, {model}, {cores}, Python {platform.python_version()}, commit {commit}{changed}"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_REPOSITORY), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
