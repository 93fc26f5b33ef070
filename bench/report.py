"""Benchmark results in ``bench/results/``: JSON, tables and a plot.

In the JSON, ``who`` is the name of the client.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from bench.plain import LIMIT

FOLDER = Path(__file__).parent / "results"

OWN_SOURCE, SPARKS_SOURCE, FLOOR = "zkconsumer", "spark-sql-kafka-0-10", "floor"

#: Pairs of clients to compare: (zkconsumer, other).
COMPARISONS = (
    ("zkconsumer, Arrow", LIMIT),
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
    """Write the results as JSON, tables and a plot."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "results.json").write_text(to_json(results) + "\n")
    (FOLDER / "results.rst").write_text(table(results))
    plot(results)


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


def grid(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a reStructuredText table without the columns in which all cells are empty."""
    columns = [(title, *cells) for title, *cells in zip(header, *rows, strict=True) if any(cells) or not rows]
    widths = [max(map(len, column)) for column in columns]
    line = "  ".join("=" * width for width in widths)
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    ]
    return "\n".join([line, text[0], line, *text[1:], line, ""])


def table(results: dict[str, Any]) -> str:
    """Return all medians as reStructuredText tables."""
    machine = results.get("machine", {})
    sections = [f"Measured on {machine.get('cpu')}, {machine.get('cores')} cores shared with the brokers.\n"]
    tables = {
        "spark": _spark_table,
        "cases": _cases_table,
        "batches": _batches_table,
        "plain": _plain_table,
        "decoder": _decoder_table,
        "memory": _memory_table,
    }
    for part, write in tables.items():
        if part in results:
            sections.append(f"{results['measured'][part]}:\n\n{write(results[part])}")
    return "\n".join(sections)


# ---- one table per part --------------------------------------------------------------------------------


def _spark_table(results: list[dict[str, Any]]) -> str:
    rates = {(row["who"], row["codec"], row["conf"]): row["triggerExecution"] for row in results}
    rows = []
    for row in results:
        rate, peer = row["triggerExecution"], rates[SPARKS_SOURCE, row["codec"], row["conf"]]
        rows.append(
            (
                row["who"],
                row["codec"],
                row["conf"],
                f"{rate / 1e6:.2f}",
                f"{row['addBatch'] / 1e6:.2f}",
                f"{rate / peer:.2f}",
            )
        )
    header = (
        "Spark stream into noop, warm",
        "codec",
        "conf",
        "M records/s, trigger",
        "addBatch",
        "ratio",
    )
    return grid(header, rows)


def _cases_table(cases: dict[str, Any]) -> str:
    rows = []
    for name, case in cases.items():
        rates = case["records/s"]
        own, bound = rates[OWN_SOURCE], _bound(rates)
        figures = [rates.get(source) for source in (OWN_SOURCE, SPARKS_SOURCE, FLOOR, LIMIT)]
        ratios = [own / other if other else None for other in (rates[SPARKS_SOURCE], bound)]
        rows.append((name, *map(_millions, [*figures, bound]), *map(_ratio, ratios)))
    clients = "zkconsumer", "Spark's own", "floor", "limit", "bound"
    header = "a query from its start, M records/s", *clients, "zkconsumer / Spark's own", "zkconsumer / bound"
    return grid(header, rows)


def _bound(rates: dict[str, float]) -> float | None:
    """Return the rate of a source that receives at the limit and passes to Spark at the floor, on shared cores."""
    return 1 / (1 / rates[FLOOR] + 1 / rates[LIMIT]) if FLOOR in rates else None


def _millions(rate: float | None) -> str:
    return "" if rate is None else f"{rate / 1e6:.2f}"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _batches_table(results: dict[str, Any]) -> str:
    times = {_batch_title(key): taken for key, taken in results["batches"].items()}
    for key in ("p50", "p99"):
        times[f"producer to sink at 10,000 records/s, {key}"] = {
            source: percentiles[key] for source, percentiles in results["latency"].items()
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
    """Return the row of a client; CPU time and memory are unknown for the JVM, and in older results."""
    rates = [run["records/s"] for run in row["runs"]]
    cpu = memory = ""
    if all("cpu seconds" in run for run in row["runs"]):
        cpu = f"{statistics.median(1e6 * run['cpu seconds'] / run['records'] for run in row['runs']):.2f}"
        memory = f"{statistics.median(run['peak bytes'] for run in row['runs']) / 1e6:.0f}"
    spread = f"{min(rates) / 1e6:.2f} to {max(rates) / 1e6:.2f}"
    return row["who"], row["topic"], _millions(row["records/s"]), spread, cpu, memory


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


# ---- plot ----------------------------------------------------------------------------------------------


def plot(results: dict[str, Any]) -> None:
    """Write the medians as a bar chart."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    bars: list[tuple[str, float]] = [
        (f"Spark, {r['conf']} conf, {r['codec']}: {r['who']}", r["triggerExecution"]) for r in results.get("spark", ())
    ]
    bars += [(f"plain, {r['topic']}: {r['who']}", r["records/s"]) for r in results.get("plain", ())]
    if not bars:
        return
    figure, axes = plt.subplots(figsize=(10, 0.32 * len(bars) + 1), layout="constrained")
    colors = ["#1f77b4" if "zkconsumer" in label else "#999999" for label, _ in bars]
    axes.barh(range(len(bars)), [value / 1e6 for _, value in bars], color=colors)
    axes.set_yticks(range(len(bars)), [label for label, _ in bars], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("million records per second, median")
    figure.savefig(FOLDER / "results.png", dpi=110)
    plt.close(figure)
