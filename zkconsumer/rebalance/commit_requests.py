"""CommitRequests: merges the application's commit requests that are waiting for an earlier commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from zkconsumer.errors import BrokerUnavailableError, ZkConsumerError
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.futures import complete_future

Offsets = dict[TopicPartition, int]


class Commit(Protocol):
    """Function that commits offsets, and returns the committed offset of each partition."""

    def __call__(self, offsets: Mapping[TopicPartition, int], *, allow_lower: bool) -> Offsets: ...


@dataclass(frozen=True, slots=True, eq=False)
class CommitRequest:
    """A commit requested by the application; see ``OffsetCommitter.commit``."""

    offsets: Mapping[TopicPartition, int]
    allow_lower: bool
    on_committed: Callable[[Offsets], None] | None
    result: Future[Offsets] = field(default_factory=Future)

    def complete(self, commit: Callable[[], Offsets]) -> None:
        """Run ``commit``, and complete the request with the result for its partitions, or with the exception."""
        complete_future(self.result, lambda: self._report(commit()))

    def _report(self, committed: Offsets) -> Offsets:
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
        self._requests: deque[CommitRequest] = deque()

    def add(self, request: CommitRequest) -> None:
        """Add a request. May be called from any thread."""
        self._requests.append(request)

    def commit_until(self, request: CommitRequest) -> Offsets:
        """Commit requests in order until ``request`` is complete; return its result or raise its exception."""
        while not request.result.done():
            self._commit_group(self._take_group())
        return request.result.result()

    def _take_group(self) -> list[CommitRequest]:
        """Remove and return the oldest request, and the subsequent requests that can be merged with it."""
        group = [self._requests.popleft()]
        offsets = dict(group[0].offsets)
        while self._requests:
            following = self._requests[0]
            is_lower = any(offset < offsets.get(partition, offset) for partition, offset in following.offsets.items())
            if is_lower or following.allow_lower != group[0].allow_lower:
                break
            offsets.update(following.offsets)
            group.append(self._requests.popleft())
        return group

    def _commit_group(self, group: list[CommitRequest]) -> None:
        offsets = {partition: offset for request in group for partition, offset in request.offsets.items()}
        committed: Future[Offsets] = Future()
        complete_future(committed, partial(self._commit, offsets, allow_lower=group[0].allow_lower))
        error = committed.exception()
        # If the commit of a partition is rejected, requests for other partitions must still succeed, so retry each
        # request individually. Do not retry if the coordinator does not respond, because each request would time out
        # again.
        is_separate = isinstance(error, ZkConsumerError) and not isinstance(error, BrokerUnavailableError)
        for request in group:
            if is_separate and len(group) > 1:
                request.complete(partial(self._commit, request.offsets, allow_lower=request.allow_lower))
            else:
                request.complete(committed.result)
