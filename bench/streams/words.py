"""Part ``words``: the word count example of Kafka Streams, with its repartition topic and caches."""

from __future__ import annotations

import statistics
import sys
from typing import Any

import numpy as np

from bench.grid import grid
from bench.streams import workload
from bench.streams.applications import WORD_COUNTS, Application
from bench.streams.measured_run import Expected, measure_run
from zkconsumer.devcluster import DevCluster

LINES, WORDS_PER_LINE, VOCABULARY = 5_000_000, 8, 100_000

#: Maximum number of lines or words per batch in the benchmark application for zkconsumer.
_MAX_BATCH_RECORDS = 2_000_000


def measure(cluster: DevCluster, lines: int, rounds: int) -> list[dict[str, Any]]:
    """Run the applications alternately, and return a row for each.

    An application can write all words to the repartition topic before it counts them, so its output rate is not its
    throughput. Each round processes a tenth of the lines, then all lines; the difference between the two runs
    excludes startup.
    """
    few, many = _Lines(cluster, lines // 10), _Lines(cluster, lines)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in WORD_COUNTS}
    for number in range(rounds):
        for name in list(WORD_COUNTS)[:: -1 if number % 2 else 1]:
            short, long = (part.measure_run(WORD_COUNTS[name]) for part in (few, many))
            words, seconds, cpu = (long[key] - short[key] for key in ("records", "total seconds", "total CPU s"))
            rates = {"words/s": words / seconds, "CPU s per million": cpu / words * 1e6}
            runs[name].append({**rates, "short": short, "long": long})
            print(
                f"  words, {name}: {words / seconds:,.0f} words/s, {cpu / words * 1e6:.2f} CPU s per million; the "
                f"short run took {short['total seconds']:.0f} s, other processes use "
                f"{long['cores of others in total']:.2f} cores",
                file=sys.stderr,
                flush=True,
            )
    rows = []
    for name, found in runs.items():
        medians = {key: statistics.median(run[key] for run in found) for key in ("words/s", "CPU s per million")}
        rows.append({"who": name, "lines": lines, **medians, "runs": found})
    return rows


class _Lines:
    """A topic with lines, and the expected word counts.

    Args:
        cluster: development cluster.
        count: number of lines.
    """

    def __init__(self, cluster: DevCluster, count: int) -> None:
        self._cluster = cluster
        words = choose_words(count)
        self._topic = cluster.create_topic(f"bench-streams-lines-{count}", workload.PARTITIONS)
        print(f"filling {self._topic} with {count:,} lines", file=sys.stderr, flush=True)
        workload.produce(cluster, self._topic, np.arange(count), lambda numbers: _join(words[numbers]))
        numbers, counts = np.unique(words, return_counts=True)
        self._expected = Expected(_spell(numbers).view(">i8").ravel().astype(np.int64), counts)

    def measure_run(self, application: Application) -> dict[str, Any]:
        """Run ``application`` on the topic, and return its figures."""
        return measure_run(
            self._cluster,
            application,
            self._topic,
            self._expected,
            cached=True,
            batch_records=_MAX_BATCH_RECORDS,
        )


def choose_words(lines: int) -> Any:
    """Return random word numbers for each line. The word frequencies follow Zipf's law."""
    shares = 1 / np.arange(1, VOCABULARY + 1)
    numbers = np.random.default_rng(1).choice(VOCABULARY, (lines, WORDS_PER_LINE), p=shares / shares.sum())
    return numbers.astype(np.int32)


def _spell(numbers: Any) -> Any:
    """Convert word numbers to 8-character words, as an array with shape (..., 8)."""
    digits: Any = numbers[..., None] // 10 ** np.arange(7, -1, -1) % 10
    return (digits + ord("a")).astype(np.uint8)


def _join(numbers: Any) -> Any:
    """Convert word numbers to lines of words separated by spaces, as an array with shape (lines, 71)."""
    with_spaces = np.full((*numbers.shape, 9), ord(" "), np.uint8)
    with_spaces[..., :8] = _spell(numbers)
    return with_spaces.reshape(len(numbers), -1)[:, :-1]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the medians as a reStructuredText table."""
    cells: list[tuple[str, ...]] = [
        (
            row["who"],
            f"{row['lines'] / 1e6:g}",
            f"{row['words/s'] / 1000:,.0f}",
            f"{row['CPU s per million']:.2f}",
            f"{statistics.median(run['short']['total seconds'] for run in row['runs']):.0f}",
            f"{max(0.0, statistics.median(run['long']['cores of others in total'] for run in row['runs'])):.1f}",
        )
        for row in rows
    ]
    header = (
        *("word count", "million lines", "thousand words/s", "CPU s per million words"),
        "seconds for 10 % of the lines, including the start",
        "cores used by other programs",
    )
    return str(grid(header, cells))
