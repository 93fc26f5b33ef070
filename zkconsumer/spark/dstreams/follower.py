"""Learns from Spark which batches are done."""

from __future__ import annotations

import threading
import time
from typing import Any

from pyspark.streaming import StreamingContext, StreamingListener

from zkconsumer.log import get_logger
from zkconsumer.spark.dstreams.sources import Source
from zkconsumer.spark.offset import total


class Follower(StreamingListener):
    """Learns when batches are done; ends with the streaming context.

    Spark tells nobody in Python that a context was stopped, so its state is looked at.
    """

    class Java:
        """What py4j wants to know."""

        implements = ["org.apache.spark.streaming.api.java.PythonStreamingListener"]

    def __init__(self, ssc: StreamingContext, source: Source) -> None:
        super().__init__()
        self._ssc, self._source = ssc, source
        self._unobserved = source.unfinished()  # batches whose completion may have been reported earlier
        self._log = get_logger("zkconsumer.spark")

    def start(self) -> None:
        """Be told of batches, until the context is stopped."""
        self._ssc.addStreamingListener(self)
        threading.Thread(target=self._watch, name="zkconsumer-dstream-watch", daemon=True).start()

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        """Acknowledge a batch, and let back-pressure know how long it took."""
        info = batchCompleted.batchInfo()
        at = int(info.batchTime().milliseconds())
        if any(found.failureReason() is not None for found in info.outputOperationInfos().values()):
            self._log.error("batch_failed", time=at, remedy="no offsets are stored from here on; start again")
            return
        try:
            self._source.complete({at, *self._completed_earlier()})
            records = total(self._source.planned_at(at))
            processing, scheduling = int(info.processingDelay()), int(info.schedulingDelay())
            if records and processing >= 0 and scheduling >= 0:  # -1 where it is not known
                self._source.rates.completed(at, records, processing, scheduling)
        except Exception as error:  # Spark would not tell of it; the next batch stores more
            self._log.warning("batch_not_acknowledged", time=at, error=repr(error))

    def _completed_earlier(self) -> list[int]:
        """Return the batches that succeeded before this listener was added.

        The context's own progress listener has the events that this one missed. It receives each event first, so a
        batch that it does not report as completed is reported to this listener later. A batch from the checkpoint
        that it does not know was not run again: it was completed before the checkpoint was written.
        """
        completed = [at for at in self._unobserved if self._has_succeeded(at)]
        self._unobserved = set()
        return completed

    def _has_succeeded(self, at: int) -> bool:
        jvm = self._ssc._jvm
        assert jvm is not None
        found = self._ssc._jssc.ssc().progressListener().getBatchUIData(jvm.Time(at))
        return found.isEmpty() or (found.get().processingEndTime().isDefined() and not found.get().isFailed())

    def _watch(self) -> None:
        while not self._is_stopped():
            time.sleep(0.5)
        self._source.close()
        _followed.discard(self._source.key)

    def _is_stopped(self) -> bool:
        try:
            return str(self._ssc._jssc.getState().toString()) == "STOPPED"
        except Exception:  # its JVM has ended
            return True


_followed: set[str] = set()


def follow(source: Source) -> None:
    """Begin to follow the batches of a source, once in each process; called at each of its batches.

    PySpark sets the active context only after its JVM context has started. The batches that are run again after a
    recovery are planned before that, so they may be completed before the follower is added.
    """
    ssc = StreamingContext._activeContext
    if ssc is not None and source.key not in _followed:
        _followed.add(source.key)
        Follower(ssc, source).start()
