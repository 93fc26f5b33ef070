"""Downloads an artifact from a Maven repository, with its dependencies. ``jars`` runs this module as a program.

In this process, all connections are verified with the certificates of the operating system, among which companies
install that of their proxy. To do so, the certificates of Python's ``ssl`` module are replaced, which a library must
not do in a user's process.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests
import tenacity
import truststore
from jgo.maven import Artifact, Dependency, MavenContext

from zkconsumer.devcluster.jars import NO_SUCH_VERSION, REPOSITORY_VARIABLE

#: Maximum seconds without data from the repository.
_TIMEOUT = 30

_ATTEMPTS = 3

#: Number of simultaneous downloads; they mostly wait for the repository.
_DOWNLOADS = 4

#: Clears the line of a terminal, because the progress of several downloads replaces one another.
_CLEAR = "\r\033[K"


class _NoSuchVersionError(Exception):
    """Raised when the repository does not contain the requested artifact."""


def main(arguments: list[str]) -> int:
    """Download jars, show the progress on standard error, and return the exit code."""
    parser = argparse.ArgumentParser(prog="downloading")
    parser.add_argument("coordinate", help="group:name:version")
    parser.add_argument("folder", type=Path, help="existing directory for the jars")
    parser.add_argument("--without-dependencies", action="store_true")
    options = parser.parse_args(arguments)
    truststore.inject_into_ssl()
    # jgo opens a connection for each request, and reading all certificates takes longer than a request.
    requests.request = requests.Session().request
    try:
        _download(options.coordinate, options.folder, with_dependencies=not options.without_dependencies)
    except _NoSuchVersionError:
        return NO_SUCH_VERSION
    except (OSError, RuntimeError) as error:  # errors of requests are OSErrors, and those of jgo are RuntimeErrors
        print(error)
        return 1
    return 0


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(requests.RequestException),
    stop=tenacity.stop_after_attempt(_ATTEMPTS),
    wait=tenacity.wait_exponential(max=5),
    reraise=True,
)
def _download(coordinate: str, folder: Path, *, with_dependencies: bool) -> None:
    """Download the jars of a coordinate to ``folder``."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as repository:
        url = os.environ.get(REPOSITORY_VARIABLE)
        context = MavenContext(
            repo_cache=Path(repository), remote_repos={"": url.rstrip("/")} if url else None, timeout=_TIMEOUT
        )
        progress = _Progress(coordinate)
        artifacts = _find_jars(context, coordinate, with_dependencies)
        with ThreadPoolExecutor(_DOWNLOADS, "zkconsumer-jars") as pool:
            for artifact, path in zip(artifacts, pool.map(Artifact.resolve, artifacts), strict=True):
                path.replace(folder / f"{artifact.groupId}_{artifact.filename}")
                progress.add_jar()
        progress.end()


def _find_jars(context: MavenContext, coordinate: str, with_dependencies: bool) -> list[Artifact]:
    group, name, version = coordinate.split(":")
    component = context.project(group, name).at_version(version)
    artifact = component.artifact()
    try:
        component.pom()
    except RuntimeError:
        if _is_missing(component.artifact(packaging="pom")):
            raise _NoSuchVersionError from None
        raise
    if not with_dependencies:
        return [artifact]
    # Maven ignores the versions that a dependency manages. jgo does so only for "raw" dependencies.
    _, dependencies = context.resolver.resolve([Dependency(artifact, raw=True)])
    return [artifact, *(one.artifact for one in dependencies if one.scope in ("compile", "runtime"))]


def _is_missing(artifact: Artifact) -> bool:
    """Return whether the repository answers that an artifact does not exist."""
    [url] = artifact.context.remote_repos.values()
    path = f"{url}/{artifact.component.path_prefix.as_posix()}/{artifact.filename}"
    return requests.head(path, timeout=_TIMEOUT, allow_redirects=True).status_code == requests.codes.not_found


class _Progress:
    """Shows the number of downloaded jars on standard error."""

    def __init__(self, coordinate: str) -> None:
        self._coordinate = coordinate
        self._jars = 0
        self._started = time.monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._write(f"downloading {coordinate} ...", is_last=not self._is_terminal)

    def add_jar(self) -> None:
        self._jars += 1
        if self._is_terminal:
            self._write(f"downloading {self._coordinate}: {self._jars} jars, {self._seconds():.0f} s ", is_last=False)

    def end(self) -> None:
        jars = "1 jar" if self._jars == 1 else f"{self._jars} jars"
        self._write(f"downloaded {self._coordinate}: {jars} in {self._seconds():.0f} s", is_last=True)

    def _write(self, text: str, *, is_last: bool) -> None:
        """Write a line at once, because several processes write to the same terminal."""
        sys.stderr.write(f"{_CLEAR if self._is_terminal else ''}{text}" + ("\n" if is_last else ""))
        sys.stderr.flush()

    def _seconds(self) -> float:
        return time.monotonic() - self._started


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
