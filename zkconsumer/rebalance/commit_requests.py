"""CommitRequests: merges the application's commit requests that are waiting for an earlier commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from zkconsumer.errors import BrokerUnavailableError, ZkConsumerError
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.futures import complete_future, fail_future


class Commit(Protocol):
    """Function that commits offsets, and returns the committed offset of each partition."""

    def __call__(self, offsets: Mapping[TopicPartition, int], *, allow_lower: bool) -> dict[TopicPartition, int]: ...


@dataclass(frozen=True, slots=True, eq=False)
class CommitRequest:
    """A commit requested by the application; see ``OffsetCommitter.commit``.

    When the committer is closed, all waiting requests fail. Those that were merged with the running commit fail too,
    although their offsets may be committed.
    """

    offsets: Mapping[TopicPartition, int]
    result: Future[dict[TopicPartition, int]]
    allow_lower: bool = False
    on_committed: Callable[[dict[TopicPartition, int]], None] | None = None

    def complete(self, commit: Callable[[], dict[TopicPartition, int]]) -> None:
        """Run ``commit``, and complete the request with the result for its partitions, or with the exception."""
        complete_future(self.result, lambda: self._report(commit()))

    def _report(self, committed: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        own = {partition: committed[partition] for partition in self.offsets}
        if self.on_committed is not None:
            self.on_committed(own)
        return own


class CommitRequests:
    """A queue of commit requests. Waiting requests are merged, so that frequent commits do not delay other requests.

    Args:
        commit: commit function; called in the thread that calls ``commit_until``.
    """

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        #: Requests with the numbers of their sections; only requests of the same section are merged.
        self._requests: deque[tuple[int, CommitRequest]] = deque()
        self._section = 0

    def add(self, request: CommitRequest) -> None:
        """Add a request. Called by the same thread as ``separate``."""
        self._requests.append((self._section, request))

    def separate(self) -> None:
        """Start a new section, because another operation must be executed between earlier and later requests."""
        self._section += 1

    def commit_until(self, request: CommitRequest) -> None:
        """Commit requests in order until ``request`` is complete, and complete each of them."""
        while not request.result.done():
            section, first = self._requests.popleft()
            group = [first]
            try:
                self._commit_group(group, self._merge_waiting(section, group))
            except BaseException as error:
                for merged in group:
                    fail_future(merged.result, error)

    def _merge_waiting(self, section: int, group: list[CommitRequest]) -> dict[TopicPartition, int]:
        """Move the oldest requests to ``group`` as long as they can be merged with it; return the offsets to commit."""
        offsets = dict(group[0].offsets)
        while self._requests and self._requests[0][0] == section:
            following = self._requests[0][1]
            is_lower = any(offset < offsets.get(partition, offset) for partition, offset in following.offsets.items())
            if is_lower or following.allow_lower != group[0].allow_lower:
                break
            offsets.update(following.offsets)
            group.append(self._requests.popleft()[1])
        return offsets

    def _commit_group(self, group: list[CommitRequest], offsets: dict[TopicPartition, int]) -> None:
        try:
            committed = self._commit(offsets, allow_lower=group[0].allow_lower)
        except ZkConsumerError as error:
            # If the commit of a partition is rejected, requests for other partitions must still succeed, so retry each
            # request individually. Do not retry if the coordinator does not respond, because each request would time
            # out again.
            if len(group) == 1 or isinstance(error, BrokerUnavailableError):
                raise
            for request in group:
                request.complete(partial(self._commit, request.offsets, allow_lower=request.allow_lower))
        else:
            for request in group:
                request.complete(lambda: committed)
