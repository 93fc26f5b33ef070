"""Applications whose query cannot be created or stopped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.no_session import NoSession

from zkconsumer.errors import ConfigurationError, StreamsError
from zkconsumer.health import Problem
from zkconsumer.spark.streams.app import StreamsApp
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.offset_commits import OffsetCommits
from zkconsumer.spark.streams.query import TopologyQuery
from zkconsumer.spark.streams.settings import QuerySettings
from zkconsumer.topology import ApplicationConfig, ApplicationState, Topology

CONFIG = ApplicationConfig(application_id="app")


class Owner:
    """The znode of an application."""

    is_held = True

    def close(self) -> None:
        self.is_held = False

    def find_loss(self) -> None:
        return None


class RunningQuery:
    """A query without a running batch."""

    isActive = False

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    @property
    def _jsq(self) -> Any:
        return self

    def lastProgress(self) -> None:
        return None

    def recentProgress(self) -> list[Any]:
        return []

    def awaitTermination(self, _timeout_s: float) -> bool:
        return False

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("error", [None, TimeoutError("planned")])
@pytest.mark.parametrize("keeps_owner", [False, True])
def test_znode_is_kept_if_query_cannot_be_stopped(error: Exception | None, keeps_owner: bool) -> None:
    query: Any = TopologyQuery(Topology(), CONFIG, None, "checkpoint", {}, QuerySettings())
    owner = query._owner = Owner()
    query._query = RunningQuery(error)
    if error is None:
        query.stop(0, keeps_owner=keeps_owner)
        assert owner.is_held is keeps_owner
    else:
        with pytest.raises(TimeoutError):
            query.stop(0, keeps_owner=keeps_owner)
        assert owner.is_held


@pytest.mark.parametrize("error", [StreamsError("another query"), RuntimeError("planned")])
def test_failure_of_commits_is_returned_once(error: Exception) -> None:
    """A restarted query must not end because of the same failure."""
    query: Any = TopologyQuery(Topology(), CONFIG, None, "checkpoint", {}, QuerySettings())
    query._query = RunningQuery(None)
    commits = query._commits = OffsetCommits(ApplicationCluster({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}))
    commits._problem = Problem("commit_failed", "planned", 0.0)
    commits._fail(error)

    assert (query.wait(0), query.exception()) == (True, commits.failure)
    assert (query.wait(0), query.exception(), query.health_reasons()) == (False, None, [])


@pytest.mark.parametrize("error", [None, TimeoutError("planned")])
def test_close_returns_whether_query_was_stopped(error: Exception | None) -> None:
    app: Any = StreamsApp(Topology(), CONFIG, NoSession(), "checkpoint", {})
    app._query._query = RunningQuery(error)
    app._supervisor._stop.set()
    app._lifecycle.set_state(ApplicationState.REBALANCING)
    app._supervisor._thread.start()
    assert app.close(10) is (error is None)
    assert app.state is ApplicationState.NOT_RUNNING


def test_session_of_spark_connect_is_rejected() -> None:
    """It has no access to the driver."""
    with pytest.raises(ConfigurationError, match="spark must be a classic SparkSession"):
        StreamsApp(Topology(), CONFIG, SimpleNamespace(readStream=object()), "checkpoint", {})
