"""Names of the nodes, stores and repartition topics of a ``StreamsBuilder``.

Source: Kafka 3.9 InternalStreamsBuilder, NamedInternal and Named.
"""

from __future__ import annotations

import re

from zkconsumer.errors import TopologyError

_MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


class Names:
    """Generates names with increasing numbers. As in Kafka Streams, a user-defined name also increments the counter."""

    def __init__(self) -> None:
        self._next = 0

    def generate(self, prefix: str) -> str:
        """Return a new node name."""
        name = f"{prefix}{self._next:010d}"
        self._next += 1
        return name

    def generate_store(self, prefix: str) -> str:
        """Return a new store name."""
        return self.generate(f"{prefix}STATE-STORE-")

    def choose(self, name: str | None, prefix: str, suffix: str = "") -> str:
        """Return ``name`` with ``suffix``, or a generated name if ``name`` is None.

        Raises:
            TopologyError: the resulting name is not valid; see ``check_name``.
        """
        generated = self.generate(prefix)
        if name == "":
            check_name(name)
        return generated if name is None else check_name(name + suffix)


def check_name(name: str, argument: str = "") -> str:
    """Return a user-defined name, after checking that it is valid.

    Args:
        name: the name.
        argument: argument that contains the name, used in error messages; empty if it is a step name.

    Raises:
        TopologyError: ``name`` is not a str, or is not a valid topic name.
    """
    if not isinstance(name, str):
        raise TopologyError(f"a step, store or topic name must be a str, got {name!r}")
    if name in ("", ".", "..") or len(name) > _MAX_LENGTH or not _LEGAL.fullmatch(name):
        where = f"{argument}: " if argument else ""
        raise TopologyError(
            f"{where}a name must consist of 1 to {_MAX_LENGTH} ASCII letters, digits, '.', '_' or '-', and must not be "
            f"'.' or '..', got {name!r}"
        )
    return name
