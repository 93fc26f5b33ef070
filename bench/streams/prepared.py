"""Prepares Spark so that applications start faster; see "Faster start" in ``docs/tuning.rst``.

Spark runs without ``pyspark.zip``, so its Python processes import the installed and compiled pyspark. The first run of
an application writes an archive of the JVM's classes when it is stopped, and later runs load the archive.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

#: Names of the archive, and of the copy of Spark's home directory, in the directory of a run.
ARCHIVE, HOME = "classes.jsa", "spark"

#: JVM options without which the JVM logs each class that it does not archive.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def create_environment(folder: str) -> list[str]:
    """Return assignments of environment variables for an application, in the form ``NAME=value``.

    Args:
        folder: directory of the application's run, for the archive and the copy of Spark's home directory.
    """
    archive = Path(folder) / ARCHIVE
    option = "SharedArchiveFile" if archive.exists() else "ArchiveClassesAtExit"
    return [f"SPARK_HOME={_link_spark(folder)}", f"JDK_JAVA_OPTIONS=-XX:{option}={archive} {_QUIET}"]


def _link_spark(folder: str) -> Path:
    """Return a directory with links to the files of pyspark except ``pyspark.zip``."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.submodule_search_locations is not None
    home = Path(folder) / HOME
    if not home.exists():
        home.mkdir()
        for path in Path(found.submodule_search_locations[0]).iterdir():
            if path.name != "python":
                (home / path.name).symlink_to(path)
    return home
