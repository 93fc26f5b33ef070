"""Benchmark results in ``bench/results/``: JSON and tables.

In the JSON, ``who`` is the name of the client.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from bench import latency, members, start
from bench.grid import grid
from bench.plain import DECODED_LIMIT, LIMIT

FOLDER = Path(__file__).parent / "results"

OWN_SOURCE, SPARKS_SOURCE, FLOOR = "zkconsumer", "spark-sql-kafka-0-10", "floor"

#: Pairs of clients to compare: (zkconsumer, other).
COMPARISONS = (
    ("zkconsumer, Arrow", LIMIT),
    ("zkconsumer, Arrow", DECODED_LIMIT),
    ("zkconsumer, Arrow", "kafkarrow"),
    ("zkconsumer, Arrow", "JVM old consumer 1.1.1"),
    ("zkconsumer, Arrow", "confluent-kafka consume(10000)"),
    ("zkconsumer, messages", "confluent-kafka consume(10000)"),
    ("zkconsumer, messages", "confluent-kafka consume(10000), without CRC check"),
    ("zkconsumer, messages, decoded", "confluent-kafka consume(10000), without CRC check, decoded"),
    ("zkconsumer, messages", "kafka-python poll"),
)


def load() -> dict[str, Any]:
    """Return the stored results."""
    path = FOLDER / "results.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save(results: dict[str, Any]) -> None:
    """Write the results as JSON and tables."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "results.json").write_text(to_json(results) + "\n")
    (FOLDER / "results.rst").write_text(table(results))


def to_json(value: Any, levels: int = 2, indent: str = "") -> str:
    """Return benchmark results as JSON. Each row of a part, or each of its ``runs``, is written on one line.

    Args:
        value: the results, or a value in them. Keys keep their order.
        levels: number of levels of lists and objects that are split into lines.
        indent: indentation of the line on which the value begins.
    """
    levels = max(levels, 1) if isinstance(value, dict) and "runs" in value else levels
    if not levels or not value or not isinstance(value, dict | list):
        return json.dumps(value)
    inner = f"{indent} "
    if isinstance(value, list):
        items = [to_json(item, levels - 1, inner) for item in value]
        opening, closing = "[", "]"
    else:
        # Runs are a list, or an object with one list per client.
        depths = {key: 1 + isinstance(item, dict) if key == "runs" else levels - 1 for key, item in value.items()}
        items = [f"{json.dumps(key)}: {to_json(item, depths[key], inner)}" for key, item in value.items()]
        opening, closing = "{", "}"
    lines = f",\n{inner}".join(items)
    return f"{opening}\n{inner}{lines}\n{indent}{closing}"


def table(results: dict[str, Any]) -> str:
    """Return all medians as reStructuredText tables."""
    sections = []
    tables = {
        "plain": _plain_table,
        "latency": latency.table,
        "members": members.table,
        "cases": _cases_table,
        "start": start.table,
        "batches": _batches_table,
        "decoder": _decoder_table,
        "memory": _memory_table,
    }
    for part, write in tables.items():
        if part in results:
            sections.append(f"{results['places'][part]}:\n\n{write(results[part])}")
    return "\n".join(sections)


# ---- one table per part --------------------------------------------------------------------------------


def _cases_table(cases: dict[str, Any]) -> str:
    rows = []
    for name, case in cases.items():
        rates, runs = case["records/s"], case["runs"]
        own, bound = rates[OWN_SOURCE], find_bound(rates)
        figures = [rates.get(source) for source in (OWN_SOURCE, SPARKS_SOURCE, FLOOR, LIMIT)]
        ratios = [own / other if other else None for other in (rates[SPARKS_SOURCE], bound)]
        spread = _spread([run["records"] / run["triggerExecution"] for run in runs[OWN_SOURCE]])
        cpu = [_median_cpu(runs[source]) for source in (OWN_SOURCE, SPARKS_SOURCE)]
        rows.append((name, *map(_millions, [*figures, bound]), *map(_ratio, ratios), spread, *cpu))
    clients = "zkconsumer", "Spark's own", "floor", "limit", "bound"
    ratio_titles = "zkconsumer / Spark's own", "zkconsumer / bound", "range of zkconsumer"
    cpu_titles = "CPU s per M records", "of Spark's own"
    return grid(("a query from its start, M records/s", *clients, *ratio_titles, *cpu_titles), rows)


def _spread(rates: list[float]) -> str:
    return f"{min(rates) / 1e6:.2f} to {max(rates) / 1e6:.2f}"


def _median_cpu(runs: list[dict[str, float]]) -> str:
    """Return the median CPU seconds per million records; empty if they were not measured."""
    if not all("cpu seconds" in run for run in runs):
        return ""
    return f"{statistics.median(1e6 * run['cpu seconds'] / run['records'] for run in runs):.2f}"


def find_bound(rates: dict[str, float]) -> float:
    """Return the rate of a source that receives at the limit and passes to Spark at the floor, on shared cores."""
    return 1 / (1 / rates[FLOOR] + 1 / rates[LIMIT])


def _millions(rate: float | None) -> str:
    return "" if rate is None else f"{rate / 1e6:.2f}"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _batches_table(results: dict[str, Any]) -> str:
    times = {_batch_title(key): taken for key, taken in results["batches"].items()}
    for rate, found in results["latency"].items():
        for key in ("p50", "p99"):
            times[f"producer to sink at {int(rate):,} records/s, {key}"] = {
                source: percentiles[key] for source, percentiles in found.items()
            }
    rows = []
    for label, taken in times.items():
        time_ms, peer_ms = taken[OWN_SOURCE], taken[SPARKS_SOURCE]
        rows.append(
            (
                label,
                f"{time_ms:.0f}",
                f"{peer_ms:.0f}",
                f"{time_ms - peer_ms:.0f}",
            )
        )
    return grid(("milliseconds, medians", "zkconsumer", "Spark's own", "difference"), rows)


def _batch_title(key: str) -> str:
    """Return the row title for ``key``, which is a batch size, optionally followed by a number of partitions."""
    size, comma, partitions = key.partition(", ")
    return f"{int(size):,} records in a batch{comma}{partitions}"


def _plain_table(results: list[dict[str, Any]]) -> str:
    rates = {(row["who"], row["topic"]): row["records/s"] for row in results}
    header = "plain consumer", "topic", "M records/s", "range", "CPU s per M records", "peak MB"
    clients = grid(header, [_plain_row(row) for row in results])
    comparisons: list[tuple[str, ...]] = []
    for topic in dict.fromkeys(topic for _, topic in rates):
        for client, peer in COMPARISONS:
            if (peer, topic) in rates:
                comparisons.append((client, peer, topic, _ratio(rates[client, topic] / rates[peer, topic])))
    return f"{clients}\n{grid(('client', 'peer', 'topic', 'ratio'), comparisons)}"


def _plain_row(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of a client; the CPU time and memory of the JVM are unknown."""
    runs = row["runs"]
    memory = f"{statistics.median(run.get('peak bytes', 0) for run in runs) / 1e6:.0f}".removeprefix("0")
    spread = _spread([run["records/s"] for run in runs])
    return row["who"], row["topic"], _millions(row["records/s"]), spread, _median_cpu(runs), memory


def _decoder_table(results: list[dict[str, Any]]) -> str:
    rows = [(row["who"], row["codec"], f"{row['records/s'] / 1e6:.2f}", f"{row['MB/s']:,.0f}") for row in results]
    return grid(("decoder alone, one thread", "codec", "M records/s", "MB/s of the log"), rows)


def _memory_table(results: dict[str, Any]) -> str:
    full, seven = results["all"], results["seven"]
    mib = 1 << 20
    rows = [
        (
            key.partition(" ")[0],
            f"{full[key] / 1e6:.2f} M/s",
            f"{seven[key] / 1e6:.2f} M/s",
            f"{seven[key] / full[key]:.1%}",
        )
        for key in ("backlog records/s of the seven", "steady records/s of the seven")
    ]
    rows.append(
        (
            "peak memory",
            f"{full['peak bytes'] / mib:.0f} MiB",
            f"{seven['peak bytes'] / mib:.0f} MiB",
            "",
        )
    )
    return grid(("one of 8 partitions never read", "all read", "seven read", "ratio"), rows)
