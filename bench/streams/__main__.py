"""``python -m bench.streams [PART ...]``: compares zkconsumer's topologies on Spark with other stream processors.

The applications count the records of each key, and write each new count to a topic. They run alternately, one at a
time, against one broker; ``bench.streams.output`` describes how their throughput is measured. The results are written
to ``streams.json`` and ``streams.rst`` in ``bench/results``.
"""

from __future__ import annotations

import argparse
from typing import Any

from bench.child_processes import stopping_children
from bench.place import describe_place
from bench.streams import count, latency, restore, stages, words
from bench.streams.applications import APPLICATIONS, STARTED
from bench.streams.results import load, save
from zkconsumer.devcluster import DevCluster

PARTS: dict[str, Any] = {"count": count, "stages": stages, "latency": latency, "restore": restore, "words": words}
RECORDS, KEYS, ROUNDS = 5_000_000, (100_000, 1_000_000), 3

#: Kafka's default delay, which allows all processes of an application to join before the first rebalance.
BROKER_CONFIG = {"group.initial.rebalance.delay.ms": 3_000}


def store(results: dict[str, Any], part: str, figures: Any) -> None:
    """Replace the stored results of a part."""
    results[part] = figures
    results.setdefault("places", {})[part] = describe_place()
    save(results, table(results))


def table(results: dict[str, Any]) -> str:
    """Return all medians as reStructuredText tables."""
    text = []
    for part, module in PARTS.items():
        if part in results:
            text.append(f"{results['places'][part]}:\n\n{module.table(results[part])}")
    return "\n".join(text)


def merge(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the new rows, and the old rows that were not measured again."""

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["keys"], list(STARTED).index(row["who"]), row.get("cached"), row.get("local files kept")

    return sorted({key(row): row for row in [*old, *new]}.values(), key=key)


def main() -> None:
    """Run the selected parts."""
    parser = argparse.ArgumentParser("bench.streams", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"parts to run: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--records", type=int, default=RECORDS, help="number of records (default: %(default)s)")
    parser.add_argument(
        "--keys", type=int, nargs="+", default=KEYS, help="numbers of distinct keys to benchmark (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs per application (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=list(STARTED), default=list(STARTED), metavar="NAME")
    options = parser.parse_args()
    if unknown := sorted(set(options.parts) - set(PARTS)):
        parser.error(f"unknown part {unknown[0]!r}; valid parts: {', '.join(PARTS)}")
    results = load()
    parts = options.parts or list(PARTS)
    with DevCluster(broker_config=BROKER_CONFIG) as cluster:
        if "stages" in parts:
            store(results, "stages", stages.measure(cluster, options.records, KEYS[0], options.rounds))
        if "latency" in parts:
            store(results, "latency", latency.measure(cluster, options.rounds))
        if "restore" in parts:
            for keys in restore.KEYS:
                rows = restore.measure(cluster, options.only, keys, options.rounds)
                store(results, "restore", merge(results.get("restore", []), rows))
        if "count" in parts:
            for keys in options.keys:
                rows = count.CountBenchmark(cluster, options.records, keys).measure(
                    [name for name in options.only if name in APPLICATIONS], options.rounds
                )
                store(results, "count", merge(results.get("count", []), rows))
        if "words" in parts:
            store(results, "words", words.measure(cluster, min(options.records, words.LINES), options.rounds))
    print(table(results))


if __name__ == "__main__":
    with stopping_children():
        main()
