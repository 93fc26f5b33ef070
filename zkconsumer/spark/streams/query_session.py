"""The Spark session of an application's query."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError

from zkconsumer.errors import StreamsError
from zkconsumer.spark import session as source
from zkconsumer.spark.driver.query_listener import QueryListener
from zkconsumer.spark.streams import sink, ticks

#: Settings of the query's Spark session.
CONF = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # With the default, true, a second query with the same checkpoint would stop the first one without an error.
    "spark.sql.streaming.stopActiveRunOnRestart": "false",
    "spark.sql.streaming.stopTimeout": "30s",
}


def create_session(spark: Any, partitions: int) -> tuple[Any, QueryListener | None]:
    """Return a clone of a session, in which the formats of the query are registered, and the listener of its queries.

    Args:
        spark: a Spark session.
        partitions: number of Spark partitions of the operator.
    """
    session = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    for name, value in {**CONF, "spark.sql.shuffle.partitions": str(partitions)}.items():
        session.conf.set(name, value)
    listener = source.register(session)
    session.dataSource.register(ticks.TickSource)
    # Spark pickles a new class by value, including its attributes; see ``session.register``.
    link = None if listener is None else listener.link
    session.dataSource.register(type("TopicSink", (sink.TopicSink,), {"link": link}))
    return session, listener


@contextlib.contextmanager
def translating_errors(name: str, checkpoint: str) -> Iterator[None]:
    """Context manager: raise StreamsError if Spark cannot start the query.

    Args:
        name: application id.
        checkpoint: checkpoint directory.
    """
    try:
        yield
    except Py4JJavaError as error:
        cause = str(error.java_exception.toString())
        if "already active" in cause:
            raise StreamsError(
                f"application {name!r}: another query in this Spark process uses checkpoint {checkpoint} or a copy of "
                "it; close the other StreamsApp first"
            ) from error
        raise StreamsError(
            f"application {name!r}: could not start the query with checkpoint {checkpoint}: {cause}"
        ) from error


@contextlib.contextmanager
def activated(session: Any) -> Iterator[None]:
    """Context manager: make ``session`` the active session of this thread, in which Spark looks up formats."""
    sessions = session._jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
