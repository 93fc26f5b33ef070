"""CorruptBatches: decides whether a stream reports, refetches or skips a corrupt batch."""

from __future__ import annotations

from enum import Enum, auto

from zkconsumer.errors import CorruptRecordError
from zkconsumer.message import TopicPartition


class CorruptBatchAction(Enum):
    """What a stream does with a corrupt batch."""

    #: Refetch the batch and raise the error.
    RAISE = auto()
    #: Refetch the batch without raising the error.
    REFETCH = auto()
    #: Skip the batch.
    SKIP = auto()


class CorruptBatches:
    """Decides how a stream handles corrupt batches; used by the application thread.

    A batch is skipped only if it is still corrupt after a refetch, because it may have been corrupted in transit. A
    batch whose end is unknown cannot be skipped.

    Args:
        skips: whether ``corrupt.record.policy`` is ``skip``.
    """

    def __init__(self, *, skips: bool) -> None:
        self._skips = skips
        self._last_offsets: dict[TopicPartition, int] = {}

    def decide(self, partition: TopicPartition, error: CorruptRecordError) -> CorruptBatchAction:
        """Return the action for a batch that was corrupt in the last fetch."""
        if not self._skips:
            return CorruptBatchAction.RAISE
        is_corrupt_again = self._last_offsets.get(partition) == error.offset
        self._last_offsets[partition] = error.offset
        if error.after < 0:
            return CorruptBatchAction.RAISE
        return CorruptBatchAction.SKIP if is_corrupt_again else CorruptBatchAction.REFETCH
