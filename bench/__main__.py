"""``make bench``: every figure beside its peers, in one run, in turn; medians go to ``bench/results/``.

``python -m bench [PART ...]`` runs some of the parts: decoder, plain, memory, spark. Leave the machine alone
meanwhile: any other load changes the figures.
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
from bench.topics import CODECS, PARTITIONS, RECORDS, fill
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.message import TopicPartition

ROUNDS = 5

#: Runs of each Spark query before those that count.
WARM_UP = 3
PARTS = ("decoder", "plain", "memory", "spark")

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
            sessions = {who: Session(who, conf, cluster, topic) for who in SPARK}
            runs: dict[str, list[dict[str, float]]] = {who: [] for who in SPARK}
            for number in range(WARM_UP + rounds):
                for who in SPARK if number % 2 else reversed(SPARK):
                    run = sessions[who].run()
                    if number >= WARM_UP:
                        runs[who].append(run)
            for who, measured in runs.items():
                sessions[who].close()
                row: dict[str, Any] = {"who": who, "codec": codec, "conf": conf}
                for key in ("triggerExecution", "addBatch"):
                    row[key] = statistics.median(run["records"] / run[key] for run in measured)
                row["runs"] = measured
                results.append(row)
                print(f"  {codec} {conf} {who}: {row['triggerExecution']:,.0f} records/s", file=sys.stderr, flush=True)
    return results


class Session:
    """A process with a Spark session that runs the same query whenever it is told to."""

    def __init__(self, who: str, conf: str, cluster: DevCluster, topic: str) -> None:
        self._log = (cluster.folder / f"bench-{conf}-{who}.log").open("w+")
        arguments = who, conf, cluster.zookeeper_connect, cluster.bootstrap_servers, topic, str(RECORDS)
        command = [sys.executable, "-m", "bench.spark_stream", *arguments]
        self._process = subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    def run(self) -> dict[str, float]:
        """Run the query once and return its times."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("run\n")
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
    if set(parts) & {"plain", "memory", "spark"}:
        with DevCluster(brokers=2) as cluster:
            topics = {codec: fill(cluster, codec) for codec in CODECS}
            if "plain" in parts:
                keep(results, "plain", plain(cluster, topics, options.rounds))
            if "spark" in parts:
                keep(results, "spark", spark(cluster, topics, options.rounds))
            if "memory" in parts:  # the last one: it adds records
                keep(results, "memory", memory(cluster, topics["none"], options.seconds, options.rounds))
    print(report.table(results))


if __name__ == "__main__":
    main()
