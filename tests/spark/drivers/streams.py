"""A driver that runs a topology until it is killed: ``python -m spark.drivers.streams '{...}'`` in ``tests``.

Settings: ``topology`` is a function of a ``module`` in ``on_path``, by default ``streams_topologies``, whose ``CONFIG``
has arguments of ``ApplicationConfig``. ``source``, ``sink`` and ``group`` are names, ``folder`` and ``checkpoint``
directories, and ``properties`` those of the consumer. ``query`` has arguments of ``QuerySettings``, ``conf`` settings
of Spark, and ``master`` its master. After an error, the query starts again, at most ``max_restarts`` times.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import signal
import sys
from pathlib import Path
from typing import Any

from zkconsumer.spark import ExceptionResponse, QuerySettings, StreamsApp
from zkconsumer.topology import ApplicationConfig

from ..session import start_spark


def _restart(error: BaseException) -> ExceptionResponse:
    print("failed:", str(error)[-2_000:], flush=True)
    return ExceptionResponse.REPLACE_QUERY


def main(settings: dict[str, Any]) -> None:
    """Run the application."""
    faulthandler.register(signal.SIGUSR1)  # prints the stacks of all threads
    sys.path.append(str(Path(__file__).parents[1] / "on_path"))
    module = importlib.import_module(settings.get("module", "streams_topologies"))
    topology = getattr(module, settings["topology"])(settings["source"], settings["sink"])
    spark = start_spark(Path(settings["folder"]), settings.get("master", "local[2]"), settings.get("conf"))
    config = ApplicationConfig(application_id=settings["group"], **getattr(module, "CONFIG", {}))
    query = QuerySettings(trigger_ms=200, max_records_per_task=200, **settings.get("query", {}))
    app = StreamsApp(
        topology,
        config,
        spark,
        settings["checkpoint"],
        settings["properties"],
        query,
        max_restarts=settings.get("max_restarts", 1_000),
    )
    app.set_uncaught_exception_handler(_restart)
    app.run()
    print("ended", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
