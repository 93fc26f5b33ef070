"""Compares the source with Spark's own on several versions of Spark: ``python -m bench.spark_versions [VERSION ...]``.

The virtual environments are those of ``make spark-versions``. On each version, both sources read a topic of 5 million
records of 100 bytes in 8 partitions into the noop sink, in alternating runs. The rates are medians of these runs, and
the results are printed as a table.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.__main__ import ROUNDS, SOURCES, TUNED, WARM_UP, Session, alternate
from bench.child_processes import stopping_children
from bench.place import describe_place
from bench.topics import RECORDS, VALUE_SIZE, fill
from scripts.spark_versions import VERSIONS, find_environment
from zkconsumer.devcluster import DevCluster


def find_python(version: str) -> Path:
    """Return the interpreter of a version's virtual environment."""
    python = find_environment(version) / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{python} does not exist; run make spark-versions VERSION={version}")
    return python


def compare(cluster: DevCluster, version: str) -> Iterator[str]:
    """Run both sources on one version of Spark, and yield a line for each of them."""
    sessions = {source: Session(source, "recommended", cluster, find_python(version)) for source in SOURCES}
    case = {"kind": "whole", "topic": fill(cluster), "records": RECORDS, "value_size": VALUE_SIZE, "peer": TUNED}
    runs = alternate(sessions, case, ROUNDS, WARM_UP)
    for session in sessions.values():
        session.close()
    for source, found in runs.items():
        rates = sorted(run["records"] / run["triggerExecution"] / 1e6 for run in found)
        cpu = statistics.median(run["cpu seconds"] / run["records"] * 1e6 for run in found)
        rate = statistics.median(rates)
        yield f"{version:8} {source:22} {rate:5.2f} ({rates[0]:.2f} to {rates[-1]:.2f}) {cpu:8.2f}"


def main() -> None:
    """Compare the given versions, or all of them."""
    with stopping_children(), DevCluster(brokers=2) as cluster:
        lines = [line for version in sys.argv[1:] or VERSIONS for line in compare(cluster, version)]
    print(f"{describe_place()}\nmillions of records per second, and CPU seconds per million records of all processes:")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
