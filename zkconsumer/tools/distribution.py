"""An installed Python distribution, its dependencies and its files.

``importlib.metadata.files`` is not used: since Python 3.12, it omits files that are missing, so a distribution that was
installed only in part cannot be detected.
"""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os.path
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from zkconsumer.tools.common import ToolError

#: File of a ``.dist-info`` directory that lists the files of the distribution.
_RECORD = "RECORD"

#: File of a ``.dist-info`` directory that contains the origin of the distribution.
_ORIGIN = "direct_url.json"

#: Installation schemes whose files are of no use to a process that imports the distribution.
_UNUSED_SCHEMES = ("scripts", "include", "platinclude")


class InstalledDistribution:
    """A distribution that is installed in this environment.

    Attributes:
        name: normalized name.
    """

    def __init__(self, name: str) -> None:
        """Find the distribution.

        Args:
            name: name, in any spelling.

        Raises:
            ToolError: the distribution is not installed, or has no metadata.
        """
        self.name = canonicalize_name(name)
        candidates = list(importlib.metadata.distributions(name=name))
        if not candidates:
            raise ToolError(f"distribution {self.name!r} is not installed; install it with pip")
        # A checkout in the working directory has an .egg-info directory, which does not list the installed files.
        self._found = next((one for one in candidates if one.read_text(_RECORD)), candidates[0])
        if not (self._found.read_text("METADATA") or self._found.read_text("PKG-INFO")):
            raise self._incomplete("METADATA")

    def __str__(self) -> str:
        return f"distribution {self.name!r}"

    @property
    def version(self) -> str:
        """Installed version."""
        return self._found.version

    def requirements(self, extras: Iterable[str] = ()) -> list[Requirement]:
        """Return the requirements that apply to this environment, including those of the extras.

        Raises:
            ToolError: the metadata is malformed.
        """
        environments = [{"extra": extra} for extra in ("", *extras)]
        try:
            found = [Requirement(text) for text in self._found.requires or ()]
        except InvalidRequirement as error:
            raise ToolError(f"{self} has malformed metadata: {error}") from error
        return [one for one in found if one.marker is None or any(map(one.marker.evaluate, environments))]

    def files(self) -> Iterator[tuple[Any, str]]:
        """Yield each file that a process needs to import and inspect the distribution, without compiled caches.

        Yields:
            The ``Path`` or ``zipfile.Path`` of the file, and its path relative to site-packages.

        Raises:
            ToolError: the files are unknown or not in site-packages, or a file is missing.
        """
        self._check_not_editable()
        for name in self._recorded():
            if "__pycache__" in name.split("/") or name.endswith(".pyc"):
                continue
            if (packed_as := self._below_site_packages(name)) is None:
                continue
            path = self._found.locate_file(name)
            if not path.exists():  # type: ignore[attr-defined]
                raise self._incomplete(name)
            if name.endswith(".pth") and _adds_directory(path):
                raise self._editable()
            yield path, packed_as

    def outside_files(self) -> list[str]:
        """Return the paths of data files outside site-packages, which an importing process finds only by prefix."""
        unused = [os.path.realpath(sysconfig.get_path(scheme)) for scheme in _UNUSED_SCHEMES]
        paths = [self._real_path(name) for name in self._recorded() if self._below_site_packages(name) is None]
        return [path for path in paths if not any(_relative(path, parent) for parent in unused)]

    def metadata_files(self) -> Iterator[tuple[Path, str]]:
        """Yield the files of the ``.dist-info`` directory that do not depend on how the distribution was installed."""
        directory = Path(str(self._found.locate_file(""))) / f"{self.name.replace('-', '_')}-{self.version}.dist-info"
        for path in sorted(directory.rglob("*")):
            if path.is_file() and path.name not in (_RECORD, _ORIGIN):
                yield path, str(path.relative_to(directory.parent))

    def _recorded(self) -> list[str]:
        """Return the paths in ``RECORD``, relative to site-packages."""
        text = self._found.read_text(_RECORD)
        if not text:
            raise ToolError(
                f"the files of {self} are unknown, because it has no {_RECORD}; install it with pip in a virtual "
                "environment"
            )
        return [row[0] for row in csv.reader(text.splitlines()) if row]

    def _check_not_editable(self) -> None:
        try:
            origin = json.loads(self._found.read_text(_ORIGIN) or "{}")
        except ValueError as error:
            raise ToolError(f"{self} has a malformed {_ORIGIN}: {error}; reinstall it") from error
        if isinstance(origin, dict) and (origin.get("dir_info") or {}).get("editable"):
            raise self._editable()

    def _below_site_packages(self, name: str) -> str | None:
        """Return the path relative to site-packages, or None for a file that is installed elsewhere."""
        if not os.path.isabs(name) and ".." not in name.split("/"):
            return name
        # Compiled modules can be in another site-packages directory than Python modules.
        path = self._real_path(name)
        roots = (os.path.realpath(sysconfig.get_path(scheme)) for scheme in ("purelib", "platlib"))
        return next((relative for root in roots if (relative := _relative(path, root))), None)

    def _real_path(self, name: str) -> str:
        return os.path.realpath(str(self._found.locate_file(name)))

    def _editable(self) -> ToolError:
        return ToolError(
            f"{self} is installed in editable mode, so its files are not in site-packages; install it without -e to "
            "pack it"
        )

    def _incomplete(self, name: str) -> ToolError:
        return ToolError(f"{self} is not completely installed: {name!r} is missing; reinstall it")


def _relative(path: str, parent: str) -> str | None:
    """Return ``path`` relative to ``parent``, or None if it is not below ``parent``."""
    return path[len(parent) + 1 :] if path.startswith(parent + os.sep) else None


def _adds_directory(path: Any) -> bool:
    """Return whether a ``.pth`` file adds a directory or an import hook of an editable installation."""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    code = [line for line in lines if line and not line.startswith("#")]
    return any(not line.startswith(("import ", "import\t")) or "__editable__" in line for line in code)
