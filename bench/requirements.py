"""``python -m bench.requirements``: the figures that are required, and the figures that were reached.

It reads the results of all parts in ``bench/results``, and writes ``requirements.rst`` there. Parts that have not been
measured are omitted.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from bench import report
from bench.grid import grid
from bench.plain import DECODED_LIMIT, LIMIT
from bench.report import FLOOR, FOLDER, OWN_SOURCE, SPARKS_SOURCE
from bench.streams import results as streams
from bench.streams.applications import PREPARED

MESSAGES, ARROW, CONFLUENT = "zkconsumer, messages", "zkconsumer, Arrow", "confluent-kafka consume(10000)"
OWN, KAFKA_STREAMS = "zkconsumer", "Kafka Streams"


class Figure(NamedTuple):
    """A required figure, and the one that was reached.

    Attributes:
        what: what is measured.
        required: the bound.
        is_minimum: whether the bound is a minimum; otherwise, it is a maximum.
        reached: the figure.
        own: zkconsumer's figure, with its range if several runs were made.
        beside: the figure with which it is compared.
        cpu: CPU time of both.
    """

    what: str
    required: float
    is_minimum: bool
    reached: float
    own: str
    beside: str
    cpu: str = ""

    def to_row(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        is_met = self.reached >= self.required if self.is_minimum else self.reached <= self.required
        bound = f"{'at least' if self.is_minimum else 'at most'} {self.required:g}"
        return self.what, bound, f"{self.reached:.2f}", "yes" if is_met else "no", self.own, self.beside, self.cpu


def _millions(rates: Iterable[float]) -> str:
    found = list(rates)
    return f"{statistics.median(found) / 1e6:.2f} ({min(found) / 1e6:.2f} to {max(found) / 1e6:.2f}) M/s"


def _cpu(*runs: list[dict[str, float]]) -> str:
    """Return the CPU seconds per million records of both clients."""
    found = [statistics.median(1e6 * run["cpu seconds"] / run["records"] for run in one) for one in runs]
    return f"{found[0]:.2f}; {found[1]:.2f} s per million"


def plain_figures(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    """Yield the figures of plain consumers."""
    runs = {(row["who"], row["topic"]): row["runs"] for row in rows}
    rates = {(row["who"], row["topic"]): row["records/s"] for row in rows}

    def compare(own: str, peer: str, topic: str, required: float, title: str) -> Figure:
        pair = runs[own, topic], runs[peer, topic]
        found, beside = (_millions(run["records/s"] for run in one) for one in pair)
        ratio = rates[own, topic] / rates[peer, topic]
        return Figure(title, required, True, ratio, found, f"{peer}: {beside}", _cpu(*pair))

    for topic in dict.fromkeys(topic for _, topic in rates):
        for peer in (CONFLUENT, f"{CONFLUENT}, without CRC check"):
            yield compare(MESSAGES, peer, topic, 2.5, f"messages, {topic}")
    for topic, required in {
        "none": 0.75,
        "1 KB": 0.75,
        "10 KB": 0.75,
        "200 partitions": 0.5,
        "1,000 partitions": 0.5,
    }.items():
        if (ARROW, topic) in runs:
            figure = compare(ARROW, LIMIT, topic, required, f"Arrow, {topic}")
            if decoded := runs.get((DECODED_LIMIT, topic)):
                rate = _millions(run["records/s"] for run in decoded)
                figure = figure._replace(beside=f"{figure.beside}; decoded: {rate}")
            yield figure


def spark_figures(cases: dict[str, Any]) -> Iterator[Figure]:
    """Yield the figures of Spark queries over whole topics."""
    for name in ("100 B", "1 KB", "10 KB", "200 partitions", "1,000 partitions"):
        if name not in cases:
            continue
        rates, runs = cases[name]["records/s"], cases[name]["runs"]
        own = _millions(run["records"] / run["triggerExecution"] for run in runs[OWN_SOURCE])
        bound = report.find_bound(rates)
        texts = f"floor {rates[FLOOR] / 1e6:.2f}, limit {rates[LIMIT] / 1e6:.2f}, bound {bound / 1e6:.2f} M/s"
        yield Figure(f"Spark, {name}", 0.85, True, rates[OWN_SOURCE] / bound, own, texts)
        peer = f"Spark's own: {rates[SPARKS_SOURCE] / 1e6:.2f} M/s"
        cpu = _cpu(runs[OWN_SOURCE], runs[SPARKS_SOURCE])
        yield Figure(f"Spark, {name}", 2.1, True, rates[OWN_SOURCE] / rates[SPARKS_SOURCE], own, peer, cpu)


def start_figures(results: dict[str, Any]) -> Iterator[Figure]:
    """Yield the figures of the start and end of queries, and of imports."""
    for key, title in (("planned", "start() to first planned batch"), ("end", "last batch to end of query")):
        own, floor = (
            statistics.median(run[key] for run in results["queries"][source]) for source in (OWN_SOURCE, FLOOR)
        )
        yield Figure(title, 1.2, False, own / floor, f"{own * 1000:.0f} ms", f"floor: {floor * 1000:.0f} ms")
    imports = results["imports"]
    own, beside = imports["zkconsumer.spark"], imports["pyspark.sql.datasource"]
    yield Figure(
        "import zkconsumer, s", 0.15, False, imports["zkconsumer"], f"{imports['zkconsumer'] * 1000:.0f} ms", ""
    )
    texts = f"{own * 1000:.0f} ms", f"pyspark.sql.datasource: {beside * 1000:.0f} ms"
    yield Figure("import zkconsumer.spark", 1.3, False, own / beside, *texts)


def member_figures(runs: dict[str, Any]) -> Iterator[Figure]:
    """Yield the figures of idle members."""
    many = runs["1000"]
    for key in ("CPU ms/s", "broker requests/s", "ZooKeeper requests/s", "bytes"):
        own, peer = (statistics.median(run[kind][key] for run in many) for kind in ("zkconsumer", "JVM 1.1.1"))
        if key == "bytes":
            title, texts = "resident memory", (f"{own / 1e6:.0f} MB", f"JVM 1.1.1: {peer / 1e6:.0f} MB")
        else:
            title, texts = key, (f"{own:.1f}", f"JVM 1.1.1: {peer:.1f}")
        yield Figure(f"idle member with 1,000 partitions, {title}", 1.0, False, own / peer, *texts)


def latency_figures(results: dict[str, Any]) -> Iterator[Figure]:
    """Yield the latencies of plain consumers."""
    for rate, runs in results.items():
        for key in ("p50", "p99"):
            own, peer = (statistics.median(run[key] for run in runs[name]) for name in (OWN, "confluent-kafka"))
            cores = [statistics.median(run["cores"] for run in runs[name]) for name in (OWN, "confluent-kafka")]
            texts = f"{own:.2f} ms", f"confluent-kafka: {peer:.2f} ms", f"{cores[0]:.2f}; {cores[1]:.2f} cores"
            yield Figure(f"producer to message, {int(rate):,} records/s, {key}", 1.1, False, own / peer, *texts)


def batch_figures(results: dict[str, Any]) -> Iterator[Figure]:
    """Yield the latencies of Spark queries."""
    for rate, found in results["latency"].items():
        for key in ("p50", "p99"):
            own, peer = (found[source][key] for source in (OWN_SOURCE, SPARKS_SOURCE))
            texts = f"{own:.0f} ms", f"Spark's own: {peer:.0f} ms"
            yield Figure(f"producer to sink of Spark, {int(rate):,} records/s, {key}", 1.0, False, own / peer, *texts)


def count_figures(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    """Yield the figures of topologies that count records by key."""
    found = {(row["who"], row["keys"], row["cached"]): row for row in rows}
    for keys, (rate, cpu) in {100_000: (1.5, 0.7), 1_000_000: (2.0, 0.5)}.items():
        for cached in (False, True):
            own, peer = (found.get((who, keys, cached)) for who in (OWN, KAFKA_STREAMS))
            if own is None or peer is None:
                continue
            title = f"count by key, {keys:,} keys, {'cached' if cached else 'every change'}"
            texts = (_millions(run["records/s"] for run in row["runs"]) for row in (own, peer))
            yield Figure(f"{title}, rate", rate, True, own["records/s"] / peer["records/s"], *_named(texts))
            used = own["CPU s per million"], peer["CPU s per million"]
            yield Figure(
                f"{title}, CPU", cpu, False, used[0] / used[1], *_named(f"{one:.2f} s per million" for one in used)
            )


def word_figures(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    """Yield the figures of word counts."""
    own, peer = (next(row for row in rows if row["who"] == who) for who in (OWN, KAFKA_STREAMS))
    texts = (_millions(run["words/s"] for run in row["runs"]) for row in (own, peer))
    yield Figure("word count, rate", 1.2, True, own["words/s"] / peer["words/s"], *_named(texts))
    used = own["CPU s per million"], peer["CPU s per million"]
    yield Figure("word count, CPU", 0.7, False, used[0] / used[1], *_named(f"{one:.2f} s per million" for one in used))


def restore_figures(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    """Yield the time that the state adds to a restart, as a fraction of Kafka Streams' restart without local files."""
    seconds = {(row["who"], row["keys"]): row["seconds"] for row in rows if not row["local files kept"]}
    if (PREPARED, 1_000_000) not in seconds:
        return
    own = seconds[PREPARED, 1_000_000] - seconds[PREPARED, 1_000]
    peer = seconds[KAFKA_STREAMS, 1_000_000]
    yield Figure(
        "restart with a million keys beyond the start",
        0.33,
        False,
        own / peer,
        *_named((f"{own:.1f} s", f"{peer:.1f} s")),
    )


def _named(texts: Iterable[str]) -> tuple[str, str]:
    own, peer = texts
    return own, f"{KAFKA_STREAMS}: {peer}"


#: Function that yields the figures of each part of ``bench``, and of ``bench.streams``.
PARTS: dict[str, Callable[[Any], Iterator[Figure]]] = {
    "plain": plain_figures,
    "latency": latency_figures,
    "members": member_figures,
    "cases": spark_figures,
    "start": start_figures,
    "batches": batch_figures,
}
STREAMS_PARTS: dict[str, Callable[[Any], Iterator[Figure]]] = {
    "count": count_figures,
    "words": word_figures,
    "restore": restore_figures,
}


def table() -> str:
    """Return the table."""
    rows: list[tuple[str, ...]] = []
    for results, parts in ((report.load(), PARTS), (streams.load(), STREAMS_PARTS)):
        for part, find in parts.items():
            if part in results:
                rows += [figure.to_row() for figure in find(results[part])]
    return grid(("figure", "required", "reached", "met", "zkconsumer", "beside it", "CPU of both"), rows)


def main() -> None:
    """Print and write the table."""
    text = table()
    print(text)
    (FOLDER / "requirements.rst").write_text(text)


if __name__ == "__main__":
    main()
