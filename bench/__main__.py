"""``make bench``: every figure beside its peers, in one run, in turn; medians go to ``bench/results/``.

``python -m bench [PART ...]`` runs some of the parts: decoder, plain, memory, spark, cases, batches. Leave the machine
alone meanwhile: any other load changes the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bench import decoder, report
from bench.topics import CODECS, PARTITIONS, RECORDS, VALUE_SIZE, fill
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import SteadyLoad, numbered_batch
from zkconsumer.message import TopicPartition

ROUNDS = 5

#: Runs of each Spark query before those that count.
WARM_UP = 3
PARTS = ("decoder", "plain", "memory", "spark", "cases", "batches")

#: Spark's own source waits so long at the end of each log, half a second by default; that is most of a short run.
TUNED = {"kafka.fetch.max.wait.ms": "50"}

#: Whole topics that Spark reads besides: name, and what differs from 100 bytes in 8 partitions into noop.
CASES: dict[str, dict[str, Any]] = {
    "none": {},
    "none, Spark's own tuned": {"peer": TUNED},
    "none, 5 million, Spark's own tuned": {"peer": TUNED, "records": RECORDS},
    "gzip": {"codec": "gzip"},
    "snappy": {"codec": "snappy"},
    "lz4": {"codec": "lz4"},
    "zstd": {"codec": "zstd"},
    "1 KB": {"size": 1000, "records": 400_000},
    "64 partitions": {"partitions": 64},
    "columns=value": {"columns": "value"},
    "windowed count": {"windowed": True},
    "100,000 records": {"records": 100_000},
}
CASE_RECORDS = 2_000_000

#: Records in a batch of a query that runs, whose time is measured, and how many such batches.
BATCH_SIZES = {8: 30, 1000: 30, 100_000: 20}

#: Records per second, and seconds, for the latency from the producer to the sink.
LATENCY_RATE, LATENCY_SECONDS = 10_000, 40

#: Who runs in each comparison, with the share of the records where a whole run would take minutes.
PLAIN = {
    "zkconsumer, Arrow": 1.0,
    "zkconsumer, Arrow, old defaults": 1.0,
    "JVM old consumer 1.1.1": 1.0,
    "confluent-kafka consume(10000)": 1.0,
    "zkconsumer, messages": 1.0,
    "kafka-python poll": 0.06,
}

SPARK = ("zkconsumer", "spark-sql-kafka-0-10")


def child(module: str, *arguments: str) -> Any:
    """Run a part in a process of its own and return what it prints last."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def plain(cluster: DevCluster, topics: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    """Run the plain consumers in turn."""
    results = []
    for codec, topic in topics.items():
        rates: dict[str, list[float]] = {who: [] for who in PLAIN}
        for number in range(rounds):
            order = list(PLAIN) if number % 2 else list(PLAIN)[::-1]
            for who in order:
                records = int(RECORDS * PLAIN[who])
                got = child(
                    "bench.plain", who, cluster.zookeeper_connect, cluster.bootstrap_servers, topic, str(records)
                )
                rates[who].append(got["records"] / got["seconds"])
                print(f"  {codec} {who}: {rates[who][-1]:,.0f} records/s", file=sys.stderr, flush=True)
        results += [
            {"who": who, "codec": codec, "records/s": statistics.median(r), "runs": r} for who, r in rates.items() if r
        ]
    return results


def spark(cluster: DevCluster, topics: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    """Run the Spark streams, each in a session of its own, in turn."""
    results = []
    for codec, topic in topics.items():
        for conf in ("recommended", "defaults"):
            sessions = {who: Session(who, conf, cluster) for who in SPARK}
            runs = in_turn(sessions, {"kind": "whole", "topic": topic, "records": RECORDS}, rounds, WARM_UP)
            for who, measured in runs.items():
                sessions[who].close()
                row: dict[str, Any] = {"who": who, "codec": codec, "conf": conf}
                for key in ("triggerExecution", "addBatch"):
                    row[key] = statistics.median(run["records"] / run[key] for run in measured)
                row["runs"] = measured
                results.append(row)
                print(f"  {codec} {conf} {who}: {row['triggerExecution']:,.0f} records/s", file=sys.stderr, flush=True)
    return results


def cases(cluster: DevCluster, rounds: int) -> dict[str, Any]:
    """Let Spark streams read whole topics of other kinds, or into another sink."""
    sessions = {who: Session(who, "recommended", cluster) for who in SPARK}
    results: dict[str, Any] = {}
    for number, (name, differs) in enumerate(CASES.items()):
        records, codec = differs.get("records", CASE_RECORDS), differs.get("codec", "none")
        shape = {key: differs[key] for key in ("size", "partitions") if key in differs}
        case = {"kind": "whole", "topic": fill(cluster, codec, records, **shape), "records": records}
        case |= {key: differs[key] for key in ("columns", "windowed", "peer") if key in differs}
        runs = in_turn(sessions, case, rounds, WARM_UP if not number else 1)
        rates = {who: statistics.median(r["records"] / r["triggerExecution"] for r in runs[who]) for who in SPARK}
        results[name] = {"records": records, "records/s": rates, "runs": runs}
        print(f"  {name}: {rates}", file=sys.stderr, flush=True)
    for session in sessions.values():
        session.close()
    return results


def batches(cluster: DevCluster) -> dict[str, Any]:
    """Measure batches of queries that run, and how late records are."""
    sessions = {who: Session(who, "recommended", cluster) for who in SPARK}
    results: dict[str, Any] = {"batches": {}, "latency": {}}
    topic = fill(cluster, "none", CASE_RECORDS)
    for size, count in BATCH_SIZES.items():
        runs = in_turn(sessions, {"kind": "batches", "topic": topic, "size": size, "count": count}, 3, 1)
        results["batches"][str(size)] = {who: statistics.median(r["milliseconds"] for r in runs[who]) for who in SPARK}
    written = cluster.create_topic("bench-latency", PARTITIONS)
    partitions = [TopicPartition(written, number) for number in range(PARTITIONS)]
    load = SteadyLoad(cluster.new_admin(), partitions, per_second=LATENCY_RATE, batch=50, width=VALUE_SIZE)
    try:
        runs = in_turn(sessions, {"kind": "latency", "topic": written, "seconds": LATENCY_SECONDS}, 2)
    finally:
        load.stop()
    for who in SPARK:
        results["latency"][who] = {key: statistics.median(r[key] for r in runs[who]) for key in ("p50", "p99")}
        sessions[who].close()
    return results


def in_turn(
    sessions: dict[str, Session], case: dict[str, Any], runs: int, warm_up: int = 0
) -> dict[str, list[dict[str, float]]]:
    """Run a case in each session, as often as is said, and return the figures by session."""
    found: dict[str, list[dict[str, float]]] = {who: [] for who in sessions}
    for number in range(warm_up + runs):
        for who in sessions if number % 2 else reversed(sessions):
            run = sessions[who].run(case)
            if number >= warm_up:
                found[who].append(run)
    return found


class Session:
    """A process with a Spark session that runs queries when it is told to; see ``bench.spark_stream`` for cases."""

    def __init__(self, who: str, conf: str, cluster: DevCluster) -> None:
        self._log = (cluster.folder / f"bench-{conf}-{who}.log").open("w+")
        arguments = who, conf, cluster.zookeeper_connect, cluster.bootstrap_servers
        command = [sys.executable, "-m", "bench.spark_stream", *arguments]
        self._process = subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    def run(self, case: dict[str, Any]) -> dict[str, float]:
        """Run a query once and return its figures."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"a query failed:\n{self._log.read()[-4000:]}")
        return json.loads(line)

    def close(self) -> None:
        """End the session."""
        self._process.communicate(timeout=60)
        self._log.close()


def memory(cluster: DevCluster, topic: str, seconds: float, rounds: int) -> dict[str, Any]:
    """Compare reading all partitions with reading seven, under a load of 100,000 records/s after the backlog."""
    results: dict[str, Any] = {}
    runs: dict[str, list[dict[str, Any]]] = {"all": [], "seven": []}
    warm = fill(cluster, "none", 20_000)
    for number in range(rounds):
        for mode in ("all", "seven") if number % 2 else ("seven", "all"):
            stop = threading.Event()
            load = threading.Thread(target=_steady, args=(cluster, topic, stop), daemon=True)
            load.start()
            wait = seconds if number == rounds - 1 else 5.0
            got = child(
                "bench.memory",
                *(mode, cluster.zookeeper_connect, warm, topic, str(RECORDS // PARTITIONS), str(wait)),
            )
            stop.set()
            load.join()
            runs[mode].append(got)
    for mode, measured in runs.items():
        results[mode] = {
            key: statistics.median(run[key] for run in measured)
            for key in ("backlog records/s of the seven", "steady records/s of the seven")
        }
        last = measured[-1]
        results[mode].update({key: last[key] for key in ("base bytes", "peak bytes", "bound bytes")})
        results[mode]["samples"] = last["samples"]
    return results


def _steady(cluster: DevCluster, topic: str, stop: threading.Event) -> None:
    with cluster.new_admin() as admin:
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            due += 0.08
            for partition in range(PARTITIONS):
                admin.produce(TopicPartition(topic, partition), numbered_batch(0, 1000))


def machine() -> dict[str, Any]:
    """Return what the figures were taken on."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = next((x.split(":")[1].strip() for x in cpuinfo.read_text().splitlines() if "model name" in x), model)
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version()}


def keep(results: dict[str, Any], part: str, found: Any) -> None:
    """Put what a part found in the place of what it found before."""
    results[part] = found
    results.setdefault("measured", {})[part] = time.strftime("%F %R")
    report.save(results)


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser("bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; all by default")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"runs of each ({ROUNDS})")
    parser.add_argument("--seconds", type=float, default=60.0, help="of steady load in the memory part (60)")
    options = parser.parse_args()
    if unknown := sorted(set(options.parts) - set(PARTS)):
        parser.error(f"no part is named {unknown[0]!r}; there are {', '.join(PARTS)}")
    results = report.load()
    results["machine"] = machine()
    parts = options.parts or list(PARTS)
    if "decoder" in parts:
        keep(results, "decoder", decoder.run())
    if set(parts) - {"decoder"}:
        with DevCluster(brokers=2) as cluster:
            needed = CODECS if set(parts) & {"plain", "memory", "spark"} else ()
            topics = {codec: fill(cluster, codec) for codec in needed}
            if "plain" in parts:
                keep(results, "plain", plain(cluster, topics, options.rounds))
            if "spark" in parts:
                keep(results, "spark", spark(cluster, topics, options.rounds))
            if "cases" in parts:
                keep(results, "cases", cases(cluster, options.rounds))
            if "batches" in parts:
                keep(results, "batches", batches(cluster))
            if "memory" in parts:  # the last one: it adds records
                keep(results, "memory", memory(cluster, topics["none"], options.seconds, options.rounds))
    print(report.table(results))


if __name__ == "__main__":
    main()
