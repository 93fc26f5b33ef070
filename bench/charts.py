"""``python -m bench.charts``: the charts of ``docs/benchmarks.rst``, from the results in ``bench/results``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from bench import report
from bench.__main__ import CASES, PLAIN_TOPICS
from bench.plain import LIMIT
from bench.report import FOLDER, OWN_SOURCE, SPARKS_SOURCE
from bench.streams import results as streams
from bench.topics import VALUE_SIZE

#: Bar colors: zkconsumer's first two figures, and the peer's.
_COLORS = ("#1f77b4", "#7fb2d9", "#999999")
_BAR = 0.26

_GIGABYTES = "GB of values per second, median of the runs"
_MILLIONS = "million records per second, median of the runs"


def draw(
    name: str,
    title: str,
    unit: str,
    labels: Sequence[str],
    bars: dict[str, list[float]],
    bound: dict[str, list[float | None]],
) -> None:
    """Write a chart: for each label, one bar per client, and the bound as a line across the bars.

    Args:
        name: name of the file, without suffix.
        title: title of the chart.
        unit: title of the value axis.
        labels: label of each group of bars.
        bars: value of each group by client; the peer is last.
        bound: value of each group, or None, by the name of the bound; may be empty.
    """
    figure = Figure(figsize=(9, 0.32 * len(labels) * len(bars) + 1.4), layout="constrained")
    axes = figure.subplots()
    colors = (*_COLORS[: len(bars) - 1], _COLORS[-1])
    for number, ((client, values), color) in enumerate(zip(bars.items(), colors, strict=True)):
        places = [place + number * _BAR for place in range(len(labels))]
        drawn = axes.barh(places, values, _BAR * 0.92, color=color, label=client)
        outline = withStroke(linewidth=3, foreground="white")  # a bound may cross the label
        axes.bar_label(drawn, [f"{value:.2f}" for value in values], padding=3, fontsize=8, path_effects=[outline])
    for client, values in bound.items():
        for place, value in enumerate(values):
            if value is None:
                continue
            ends = [place - _BAR * 0.6, place + (len(bars) - 0.4) * _BAR]
            axes.plot([value, value], ends, color="#d62728", linewidth=2, label=client if not place else None)
    axes.set_yticks([place + (len(bars) - 1) / 2 * _BAR for place in range(len(labels))], labels)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(title)
    axes.margins(x=0.08)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(FOLDER / f"{name}.png", dpi=110)


def draw_plain(rows: list[dict[str, Any]]) -> None:
    """Draw the chart of plain consumers. The limit receives compressed records, so it is no limit of their values."""
    sizes = {name: shape.get("size", VALUE_SIZE) for name, shape in PLAIN_TOPICS.items()}
    rates = {(row["who"], row["topic"]): row["records/s"] * sizes[row["topic"]] / 1e9 for row in rows}
    topics = [topic for topic in PLAIN_TOPICS if (LIMIT, topic) in rates]
    clients = {
        "zkconsumer, Arrow batches": "zkconsumer, Arrow",
        "zkconsumer, messages": "zkconsumer, messages",
        "confluent-kafka, messages, no CRC check": "confluent-kafka consume(10000), without CRC check",
    }
    bars = {title: [rates[who, topic] for topic in topics] for title, who in clients.items()}
    limits = [None if "codec" in PLAIN_TOPICS[topic] else rates[LIMIT, topic] for topic in topics]
    labels = ["100 B" if topic == "none" else topic for topic in topics]
    draw("plain", "Plain consumers: whole topics", _GIGABYTES, labels, bars, {"limit: nothing decoded": limits})


def draw_spark(cases: dict[str, Any]) -> None:
    """Draw the chart of Spark queries."""
    sizes = {name: CASES[name].get("size", VALUE_SIZE) / 1e9 for name in cases}
    rates = {name: case["records/s"] for name, case in cases.items()}
    bars = {
        "zkconsumer": [rate[OWN_SOURCE] * sizes[name] for name, rate in rates.items()],
        "Spark's own source": [rate[SPARKS_SOURCE] * sizes[name] for name, rate in rates.items()],
    }
    bounds = [None if "codec" in CASES[name] else sizes[name] * report.find_bound(rate) for name, rate in rates.items()]
    title = "Spark: whole topics into noop, from the start of the query"
    draw("spark", title, _GIGABYTES, list(rates), bars, {"bound": bounds})


def draw_topologies(rows: list[dict[str, Any]]) -> None:
    """Draw the charts of topologies: rate and CPU time."""
    found = {(row["who"], row["keys"], row["cached"]): row for row in rows}
    cases = [(keys, cached) for who, keys, cached in found if who == "zkconsumer"]
    labels = [f"{keys:,} keys,\n{'cached' if cached else 'every change'}" for keys, cached in cases]
    for name, key, factor, unit in (
        ("topologies", "records/s", 1e-6, _MILLIONS),
        ("topologies-cpu", "CPU s per million", 1.0, "CPU seconds per million records, without the broker"),
    ):
        clients = ("zkconsumer", "Kafka Streams")
        bars = {who: [factor * found[who, *case][key] for case in cases] for who in clients}
        draw(name, "Topologies: count by key", unit, labels, bars, {})


def main() -> None:
    """Draw all charts whose results exist."""
    results, of_streams = report.load(), streams.load()
    if "plain" in results:
        draw_plain(results["plain"])
    if "cases" in results:
        draw_spark(results["cases"])
    if "count" in of_streams:
        draw_topologies(of_streams["count"])


if __name__ == "__main__":
    main()
