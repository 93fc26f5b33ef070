"""Completes batches, updates the back-pressure rate, and closes sources when their streaming context stops."""

from __future__ import annotations

import threading
import time
from typing import Any

from pyspark.streaming import StreamingContext, StreamingListener

from zkconsumer.log import get_logger
from zkconsumer.spark.dstreams.sources import Source

#: Seconds between two polls of a streaming context's state.
_STATE_INTERVAL_S = 0.5


class Follower(StreamingListener):
    """Completes the batches of a source, until the streaming context stops.

    Spark calls it in its listener bus thread. A second thread polls the state of the context, because PySpark has no
    event for a stop.
    """

    class Java:
        """The Java interfaces that ``Follower`` implements, for py4j."""

        implements = ["org.apache.spark.streaming.api.java.PythonStreamingListener"]

    def __init__(self, ssc: StreamingContext, source: Source) -> None:
        super().__init__()
        self._ssc, self._source = ssc, source
        self._log = get_logger("zkconsumer.spark")

    def start(self) -> None:
        """Start listening."""
        self._ssc.addStreamingListener(self)
        threading.Thread(target=self._close_after_stop, name="zkconsumer-dstream-watch", daemon=True).start()

    def onBatchSubmitted(self, batchSubmitted: Any) -> None:
        """Record that Spark submitted the jobs of a batch."""
        self._source.submit(int(batchSubmitted.batchInfo().batchTime().milliseconds()))

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        """Mark a batch as completed or failed; after a completed batch, update the back-pressure rate."""
        info = batchCompleted.batchInfo()
        time_ms = int(info.batchTime().milliseconds())
        try:
            self._settle_earlier(time_ms)
            if any(output.failureReason() is not None for output in info.outputOperationInfos().values()):
                self._source.fail(time_ms, "an output operation failed")
            else:
                self._source.complete({time_ms})
                self._update_rate_limits(time_ms, info)
            self._source.forget_before(time_ms - 2 * self._remembered_ms())
        except Exception as error:  # Spark would ignore the error; a later commit includes the batch's offsets
            self._log.warning("batch_completion_failed", batch_time_ms=time_ms, error=repr(error))

    def _update_rate_limits(self, time_ms: int, info: Any) -> None:
        records = self._source.count_records(time_ms)
        processing_ms, scheduling_ms = int(info.processingDelay()), int(info.schedulingDelay())
        if records and processing_ms >= 0 and scheduling_ms >= 0:  # -1 if unknown
            self._source.rate_limits.update(time_ms, records, processing_ms, scheduling_ms)

    def _remembered_ms(self) -> int:
        """Return how long batches must be retained for windows and checkpoints, in milliseconds.

        Source: Spark 4.2 DStreamGraph.getMaxInputStreamRememberDuration.
        """
        return int(self._ssc._jssc.ssc().graph().getMaxInputStreamRememberDuration().milliseconds())

    def _settle_earlier(self, time_ms: int) -> None:
        """Complete, reschedule or fail earlier batches whose completion was not reported to this listener.

        The context's own progress listener received the events that this listener missed. It receives each event
        first, so if a batch is not completed there, its completion will be reported to this listener. Batches are
        submitted in time order, so a batch that is unknown to the progress listener will no longer be submitted.
        """
        jvm = self._ssc._jvm
        assert jvm is not None
        for earlier_ms in sorted(earlier for earlier in self._source.uncompleted() if earlier < time_ms):
            if self._source.has_failed:
                return
            batch = self._ssc._jssc.ssc().progressListener().getBatchUIData(jvm.Time(earlier_ms))
            if batch.isEmpty():
                self._source.settle_unknown(earlier_ms)
                continue
            self._source.submit(earlier_ms)
            if batch.get().isFailed():
                self._source.fail(earlier_ms, "an output operation failed")
            elif batch.get().processingEndTime().isDefined():
                self._source.complete({earlier_ms})

    def _close_after_stop(self) -> None:
        while not self._is_stopped():
            time.sleep(_STATE_INTERVAL_S)
        self._source.close()
        _followed.discard(self._source.key)

    def _is_stopped(self) -> bool:
        try:
            return str(self._ssc._jssc.getState().toString()) == "STOPPED"
        except Exception:  # the JVM terminated
            return True


#: Keys of the sources that have a follower.
_followed: set[str] = set()


def follow(source: Source) -> None:
    """Add a ``Follower`` for a source, if there is none and the streaming context is active. Called for each batch.

    PySpark sets the active context only after the JVM context has started. Batches that are re-run after a recovery are
    planned earlier, so they may be completed before the follower is added.
    """
    ssc = StreamingContext._activeContext
    if ssc is not None and source.key not in _followed:
        Follower(ssc, source).start()
        _followed.add(source.key)
