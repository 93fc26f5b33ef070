"""``BranchedKStream``: splits a stream into branches.

Source: Kafka 3.9 BranchedKStreamImpl.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Generic

from zkconsumer.checked_arguments import check_arguments
from zkconsumer.errors import TopologyError
from zkconsumer.topology.dsl.graph import ProcessorGraphNode
from zkconsumer.topology.dsl.names import check_name
from zkconsumer.topology.dsl.stateless import Branch, PassThrough, Predicate
from zkconsumer.topology.type_variables import K, V

if TYPE_CHECKING:
    from zkconsumer.topology.dsl.stream import KStream

#: Function applied to a branch. The stream that it returns replaces the branch in the result; None omits the branch.
Chain = Callable[["KStream[K, V]"], "KStream[K, V] | None"]


class BranchedKStream(Generic[K, V]):
    """Splits a stream: each record goes to the first branch that accepts it, or else to the default branch, if any.

    ::

        streams = clicks.split(name="by-kind-").branch(is_order, name="orders").default_branch(name="others")
        orders, others = streams["by-kind-orders"], streams["by-kind-others"]

    Args:
        stream: stream to split.
        name: prefix of the branch names; None for a generated prefix.
    """

    def __init__(self, stream: KStream[K, V], name: str | None) -> None:
        self._stream, self._names = stream, stream.graph.names
        self._name = self._names.choose(name, "KSTREAM-BRANCH-")
        self._predicates: list[Predicate] = []
        self._children: list[str] = []
        self._streams: dict[str, KStream[K, V]] = {}
        self._is_complete = False
        self._node = ProcessorGraphNode(
            self._name, lambda: partial(Branch, tuple(self._predicates), tuple(self._children))
        )
        stream.graph.add(self._node, stream.node)

    @check_arguments
    def branch(
        self, predicate: Predicate[K, V], *, name: str | None = None, chain: Chain[K, V] | None = None
    ) -> BranchedKStream[K, V]:
        """Add a branch for records that no earlier branch accepts and for which ``predicate(key, value)`` is true.

        Args:
            predicate: function that returns whether the branch accepts a record, given its key and value.
            name: suffix of the branch name; None for the branch number, starting at 1.
            chain: function applied to the branch, for example to add steps; see ``Chain``.
        """
        self._require_incomplete()
        self._predicates.append(predicate)
        self._add(str(len(self._predicates)) if name is None else name, chain)
        return self

    @check_arguments
    def default_branch(self, *, name: str | None = None, chain: Chain[K, V] | None = None) -> dict[str, KStream[K, V]]:
        """Add a branch for all remaining records, and return a dict from branch names to streams.

        Args:
            name: suffix of the branch name; None for ``0``.
            chain: see ``branch``.
        """
        self._require_incomplete()
        self._add("0" if name is None else name, chain)
        return self.no_default_branch()

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Return a dict from branch names to streams. Records that no branch accepts are dropped."""
        self._is_complete = True
        return self._streams

    def _require_incomplete(self) -> None:
        if self._is_complete:
            raise TopologyError(
                f"split {self._name!r}: a branch was added after default_branch() or no_default_branch()"
            )

    def _add(self, suffix: str, chain: Chain[K, V] | None) -> None:
        if not suffix:
            check_name(suffix, "name")
        name = check_name(self._name + suffix)
        self._children.append(name)
        self._names.generate(name)  # as in Kafka Streams, a branch increments the name counter
        child = ProcessorGraphNode(name, lambda: PassThrough)
        source = self._stream
        source.graph.add(child, self._node)
        stream = type(source)(source.graph, child, name, source.serdes, source.sources, source.is_rekeyed)
        result = stream if chain is None else chain(stream)
        if result is not None:
            self._streams[name] = result
