"""Downloads an artifact from a Maven repository, with its dependencies. ``jars`` runs this module as a program.

Connections are verified with the certificates of the operating system, which include those of corporate proxies.
truststore replaces Python's ``SSLContext`` for the whole process, so this module runs in its own process.
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
from jgo.maven import Artifact, Dependency, MavenContext, PythonResolver

from zkconsumer.devcluster.jars import NO_SUCH_VERSION, REPOSITORY_VARIABLE

#: Maximum seconds without data from the repository.
_TIMEOUT = 30

_ATTEMPTS = 3

#: Number of simultaneous downloads; they mostly wait for the repository.
_DOWNLOADS = 4

#: Clears the line of a terminal: concurrent downloads write their progress to the same line.
_CLEAR = "\r\033[K"


class _NoSuchVersionError(Exception):
    """Raised when the repository does not contain the requested artifact."""


class _DownloadError(Exception):
    """Raised when a file cannot be downloaded although it may exist."""


class _Resolver(PythonResolver):
    """Reports failed requests. jgo ignores errors of requests for the POM of a dependency, and would omit its jars."""

    def download(self, artifact: Artifact) -> Path | None:
        """Download a file.

        Raises:
            RuntimeError: the file does not exist.
            _DownloadError: the request failed.
        """
        try:
            return super().download(artifact)
        except requests.RequestException as error:
            raise _DownloadError(f"{artifact.filename}: {error}") from error
        except RuntimeError as error:  # for each status other than 200
            status = _get_status(artifact)
            if status == requests.codes.not_found:
                raise
            raise _DownloadError(f"{artifact.filename}: HTTP status {status}") from error


def main(arguments: list[str]) -> int:
    """Download jars, show the progress on standard error, and return the exit code."""
    parser = argparse.ArgumentParser(prog="downloading")
    parser.add_argument("coordinate", help="group:name:version")
    parser.add_argument("folder", type=Path, help="existing directory for the jars")
    parser.add_argument("--without-dependencies", action="store_true")
    options = parser.parse_args(arguments)
    truststore.inject_into_ssl()
    # jgo opens a connection and loads all certificates for each request. A session reuses both.
    requests.request = requests.Session().request
    try:
        _download(options.coordinate, options.folder, with_dependencies=not options.without_dependencies)
    except _NoSuchVersionError:
        return NO_SUCH_VERSION
    except _DownloadError as error:
        print(error)
        return 1
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    return 0


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(_DownloadError),
    stop=tenacity.stop_after_attempt(_ATTEMPTS),
    wait=tenacity.wait_exponential(max=5),
    reraise=True,
)
def _download(coordinate: str, folder: Path, *, with_dependencies: bool) -> None:
    """Download the jars of a coordinate to ``folder``."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as repository:
        url = os.environ.get(REPOSITORY_VARIABLE)
        repositories = {"": url.rstrip("/")} if url else None
        context = MavenContext(_Resolver(), Path(repository), remote_repos=repositories, timeout=_TIMEOUT)
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
        raise _NoSuchVersionError from None
    if not with_dependencies:
        return [artifact]
    # Maven ignores the ``dependencyManagement`` of dependencies. jgo ignores it only if ``raw`` is True.
    _, dependencies = context.resolver.resolve([Dependency(artifact, raw=True)])
    return [artifact, *(one.artifact for one in dependencies if one.scope in ("compile", "runtime"))]


def _get_status(artifact: Artifact) -> int:
    """Return the HTTP status with which the repository answers a request for an artifact."""
    [url] = artifact.context.remote_repos.values()
    path = f"{url}/{artifact.component.path_prefix.as_posix()}/{artifact.filename}"
    try:
        return requests.head(path, timeout=_TIMEOUT, allow_redirects=True).status_code
    except requests.RequestException as error:
        raise _DownloadError(f"{artifact.filename}: {error}") from error


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
