"""The results as JSON, as a table and as a plot, in ``bench/results/``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"

#: What Spark's own source is to be exceeded by under the recommended settings.
SPARK_GOAL = 4.5

#: (ours, peer, the ratio to reach at least) of the plain consumers.
GOALS = (
    ("zkconsumer, Arrow", "JVM old consumer 1.1.1", 4.0),
    ("zkconsumer, Arrow", "confluent-kafka consume(10000)", 4.0),
    ("zkconsumer, messages", "confluent-kafka consume(10000)", 1.0),
    ("zkconsumer, messages", "kafka-python poll", 10.0),
)


def load() -> dict[str, Any]:
    """Return the results of earlier parts."""
    path = FOLDER / "results.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save(results: dict[str, Any]) -> None:
    """Write JSON, table and plot."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (FOLDER / "results.rst").write_text(table(results))
    plot(results)


def grid(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    line = "  ".join("=" * width for width in widths)
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]
    return "\n".join([line, text[0], line, *text[1:], line, ""])


def table(results: dict[str, Any]) -> str:
    """Return all medians as reStructuredText."""
    machine = results.get("machine", {})
    where = f"{machine.get('cpu')}, {machine.get('cores')} cores shared with the brokers"
    parts = [f"Measured on {where}.\n"]
    if "spark" in results:
        rows = []
        for row in results["spark"]:
            peer = next(
                r["triggerExecution"]
                for r in results["spark"]
                if (r["codec"], r["conf"]) == (row["codec"], row["conf"]) and r["who"] != "zkconsumer"
            )
            rows.append(
                (
                    row["who"],
                    row["codec"],
                    row["conf"],
                    f"{row['triggerExecution'] / 1e6:.2f}",
                    f"{row['addBatch'] / 1e6:.2f}",
                    f"{row['triggerExecution'] / peer:.2f}",
                    *_judged(row, peer),
                )
            )
        header = (
            "Spark stream into noop, warm",
            "codec",
            "conf",
            "M records/s, trigger",
            "addBatch",
            "ratio",
            "wanted",
            "reached",
        )
        parts.append(_when(results, "spark") + grid(header, rows))
    if "cases" in results:
        parts.append(_when(results, "cases") + _cases(results["cases"]))
    if "batches" in results:
        parts.append(_when(results, "batches") + _batches(results["batches"]))
    if "plain" in results:
        rates = {(row["who"], row["codec"]): row["records/s"] for row in results["plain"]}
        rows = [(who, codec, f"{rate / 1e6:.2f}") for (who, codec), rate in rates.items()]
        parts.append(_when(results, "plain") + grid(("plain consumer, values touched", "codec", "M records/s"), rows))
        rows = []
        for codec in dict.fromkeys(codec for _, codec in rates):
            for mine, peer, goal in GOALS:
                if (peer, codec) in rates:
                    ratio = rates[mine, codec] / rates[peer, codec]
                    rows.append((mine, peer, codec, f"{ratio:.1f}", f"{goal:g}", _yes(ratio >= goal)))
        parts.append(grid(("ours", "beside", "codec", "ratio", "wanted", "reached"), rows))
    if "decoder" in results:
        rows = [(r["who"], r["codec"], f"{r['records/s'] / 1e6:.2f}", f"{r['MB/s']:,.0f}") for r in results["decoder"]]
        parts.append(
            _when(results, "decoder")
            + grid(("decoder alone, one thread", "codec", "M records/s", "MB/s of the log"), rows)
        )
    if "memory" in results:
        full, seven = results["memory"]["all"], results["memory"]["seven"]
        mb = 1 << 20
        rows = [
            (
                key.partition(" ")[0],
                f"{full[key] / 1e6:.2f} M/s",
                f"{seven[key] / 1e6:.2f} M/s",
                f"{seven[key] / full[key]:.1%}",
                "95%",
                _yes(seven[key] >= 0.95 * full[key]),
            )
            for key in ("backlog records/s of the seven", "steady records/s of the seven")
        ]
        rows.append(
            (
                "peak memory",
                f"{full['peak bytes'] / mb:.0f} MiB",
                f"{seven['peak bytes'] / mb:.0f} MiB",
                "",
                f"{seven['bound bytes'] / mb:.0f} MiB",
                _yes(seven["peak bytes"] <= seven["bound bytes"]),
            )
        )
        header = ("one of 8 partitions never read", "all read", "seven read", "ratio", "wanted", "reached")
        parts.append(_when(results, "memory") + grid(header, rows))
    return "\n".join(parts)


def _cases(cases: dict[str, Any]) -> str:
    """Return the table of whole topics."""
    rows = []
    for name, case in cases.items():
        mine, peer = (case["records/s"][who] for who in ("zkconsumer", "spark-sql-kafka-0-10"))
        goal = {"none": SPARK_GOAL, "columns=value": 6.0}.get(name, 1.0)
        rows.append(
            (
                name,
                f"{mine / 1e6:.2f}",
                f"{peer / 1e6:.2f}",
                f"{mine / peer:.2f}",
                f"{goal:g}",
                _yes(mine >= goal * peer),
            )
        )
    header = "a query from its start, M records/s", "zkconsumer", "Spark's own", "ratio", "wanted", "reached"
    return grid(header, rows)


def _batches(found: dict[str, Any]) -> str:
    """Return the table of batches of queries that run, and of latency."""
    rows = []
    for size, taken in found["batches"].items():
        rows.append((f"{int(size):,} records in a batch", *_late(taken["zkconsumer"], taken["spark-sql-kafka-0-10"])))
    for key in ("p50", "p99"):
        mine, peer = (found["latency"][who][key] for who in ("zkconsumer", "spark-sql-kafka-0-10"))
        rows.append((f"producer to sink at 10,000 records/s, {key}", *_late(mine, peer)))
    header = "milliseconds, medians", "zkconsumer", "Spark's own", "more", "wanted", "reached"
    return grid(header, rows)


def _late(mine: float, peer: float) -> tuple[str, ...]:
    return f"{mine:.0f}", f"{peer:.0f}", f"{mine - peer:.0f}", "100", _yes(mine - peer <= 100)


def _when(results: dict[str, Any], part: str) -> str:
    return f"{results['measured'][part]}:\n\n"


def _judged(row: dict[str, Any], peer: float) -> tuple[str, str]:
    if (row["who"], row["conf"]) != ("zkconsumer", "recommended"):
        return "", ""
    return f"{SPARK_GOAL}", _yes(row["triggerExecution"] >= SPARK_GOAL * peer)


def _yes(reached: bool) -> str:
    return "yes" if reached else "no"


def plot(results: dict[str, Any]) -> None:
    """Draw the medians as bars."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    bars: list[tuple[str, float]] = [
        (f"Spark, {r['conf']} conf, {r['codec']}: {r['who']}", r["triggerExecution"]) for r in results.get("spark", ())
    ]
    bars += [(f"plain, {r['codec']}: {r['who']}", r["records/s"]) for r in results.get("plain", ())]
    if not bars:
        return
    figure, axes = plt.subplots(figsize=(10, 0.32 * len(bars) + 1), layout="constrained")
    colours = ["#1f77b4" if "zkconsumer" in label else "#999999" for label, _ in bars]
    axes.barh(range(len(bars)), [value / 1e6 for _, value in bars], color=colours)
    axes.set_yticks(range(len(bars)), [label for label, _ in bars], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("million records of 100 bytes per second, median")
    figure.savefig(FOLDER / "results.png", dpi=110)
    plt.close(figure)
