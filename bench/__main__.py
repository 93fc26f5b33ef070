"""``make bench``: compares zkconsumer with other clients, and writes medians to ``bench/results/``.

``python -m bench [PART ...]`` runs only the given parts: decoder, plain, memory, spark, cases, batches. The clients
run alternately. Use an idle machine, because any other load distorts the results.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import decoder, report
from bench.child_processes import stopping_children
from bench.plain import LIMIT
from bench.topics import CODECS, PARTITIONS, RECORDS, VALUE_SIZE, fill
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import SteadyLoad, numbered_batch
from zkconsumer.message import TopicPartition

ROUNDS = 5

#: Number of uncounted warm-up runs of each Spark query.
WARM_UP = 3
PARTS = ("decoder", "plain", "memory", "spark", "cases", "batches")

#: Options that limit how long Spark's own source waits at the end of each log. The default, 500 ms, would dominate the
#: duration of a short run.
TUNED = {"kafka.fetch.max.wait.ms": "50"}

#: Further Spark queries over whole topics, by name, with their differences from the default case: 100-byte records,
#: 8 partitions and the noop sink.
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
    "200 partitions": {"partitions": 200},
    "1,000 partitions, Spark's own tuned": {"partitions": 1000, "peer": TUNED},
    "columns=value": {"columns": "value"},
    "windowed count": {"windowed": True},
    "100,000 records": {"records": 100_000},
}
CASE_RECORDS = 2_000_000

#: Records per batch of a running query -> number of batches.
BATCH_SIZES = {8: 30, 1000: 30, 100_000: 20}

#: Batches on topics with more partitions: (partitions, records per batch, number of batches). A batch contains at least
#: one record of each partition.
WIDE_BATCHES = ((200, 1000, 10),)

#: Load for measuring the latency from producer to sink: records per second, and duration in seconds.
LATENCY_RATE, LATENCY_SECONDS = 10_000, 40

#: Topics that are read without Spark, by name, with their differences from the default topic: 5 million records with
#: 100-byte values, without keys and headers, in 8 partitions, not compressed.
PLAIN_TOPICS: dict[str, dict[str, Any]] = {
    "none": {},
    "lz4": {"codec": "lz4"},
    "zstd": {"codec": "zstd"},
    "keys": {"key_size": 16},
    "headers": {"headers": 2},
    "1 KB": {"size": 1000, "records": 1_000_000},
    "10 KB": {"size": 10_000, "records": 200_000},
    "200 partitions": {"partitions": 200},
    "1,000 partitions": {"partitions": 1000},
}

#: Clients without Spark that read all of these topics, and those that read only the default topic, with the fraction of
#: its records. kafka-python reads only a part, because reading all records would take minutes. 64 KiB is the default
#: receive buffer size of Kafka's old consumer.
PLAIN_CLIENTS = (
    LIMIT,
    "zkconsumer, Arrow",
    "kafkarrow",
    "zkconsumer, messages",
    "confluent-kafka consume(10000)",
    "confluent-kafka consume(10000), without CRC check",
)
FURTHER_CLIENTS = {
    "zkconsumer, Arrow, 64 KiB receive buffer": 1.0,
    "JVM old consumer 1.1.1": 1.0,
    "zkconsumer, messages, decoded": 1.0,
    "confluent-kafka consume(10000), without CRC check, decoded": 1.0,
    "kafka-python poll": 0.06,
}

SOURCES = (report.OWN_SOURCE, report.SPARKS_SOURCE)


def child(module: str, *arguments: str) -> Any:
    """Run a module in a child process, and return its last output line, parsed as JSON."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def plain(cluster: DevCluster, rounds: int) -> list[dict[str, Any]]:
    """Run the clients without Spark, and return a row for each combination of client and topic."""
    results = []
    for name, shape in PLAIN_TOPICS.items():
        topic, records = fill(cluster, **shape), shape.get("records", RECORDS)
        shares = dict.fromkeys(PLAIN_CLIENTS, 1.0) | ({} if shape else FURTHER_CLIENTS)
        runs: dict[str, list[dict[str, float]]] = {client: [] for client in shares}
        for number in range(rounds):
            for client in shares if number % 2 else reversed(shares):
                runs[client].append(read_plain(cluster, client, topic, int(records * shares[client])))
                print(f"  {name}, {client}: {runs[client][-1]}", file=sys.stderr, flush=True)
        for client, found in runs.items():
            rate = statistics.median(run["records/s"] for run in found)
            results.append({"who": client, "topic": name, "records/s": rate, "runs": found})
    return results


def read_plain(cluster: DevCluster, client: str, topic: str, records: int) -> dict[str, float]:
    """Run a client without Spark, and return its ``records/s`` and the figures of ``bench.plain``."""
    servers = cluster.zookeeper_connect, cluster.bootstrap_servers
    found = child("bench.plain", client, *servers, topic, str(records))
    return {"records/s": found["records"] / found["seconds"], **found}


def spark(cluster: DevCluster, topics: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    """Run Spark queries over whole topics, each source in its own session.

    Returns:
        A row for each combination of codec, settings and source.
    """
    results = []
    for codec, topic in topics.items():
        for conf in ("recommended", "defaults"):
            sessions = {source: Session(source, conf, cluster) for source in SOURCES}
            runs = alternate(sessions, {"kind": "whole", "topic": topic, "records": RECORDS}, rounds, WARM_UP)
            for source, measured in runs.items():
                sessions[source].close()
                row: dict[str, Any] = {"who": source, "codec": codec, "conf": conf}
                for key in ("triggerExecution", "addBatch"):
                    row[key] = statistics.median(run["records"] / run[key] for run in measured)
                row["runs"] = measured
                results.append(row)
                print(
                    f"  {codec} {conf} {source}: {row['triggerExecution']:,.0f} records/s", file=sys.stderr, flush=True
                )
    return results


def cases(cluster: DevCluster, rounds: int) -> dict[str, Any]:
    """Run ``CASES``, and return the medians and the runs of each case."""
    sessions: dict[str, Session | Receiver] = {
        source: Session(source, "recommended", cluster) for source in (*SOURCES, report.FLOOR)
    }
    sessions[LIMIT] = Receiver(cluster)
    results: dict[str, Any] = {}
    for number, (name, options) in enumerate(CASES.items()):
        records, codec = options.get("records", CASE_RECORDS), options.get("codec", "none")
        shape = {key: options[key] for key in ("size", "partitions") if key in options}
        case = {"kind": "whole", "topic": fill(cluster, codec, records, **shape), "records": records}
        case |= {key: options[key] for key in ("columns", "windowed", "peer") if key in options}
        case["value_size"] = options.get("size", VALUE_SIZE)
        runs = alternate(sessions, case, rounds, WARM_UP if not number else 1)
        rates = {
            source: statistics.median(r["records"] / r["triggerExecution"] for r in found)
            for source, found in runs.items()
        }
        results[name] = {"records": records, "records/s": rates, "runs": runs}
        print(f"  {name}: {rates}", file=sys.stderr, flush=True)
    for session in sessions.values():
        session.close()
    return results


def batches(cluster: DevCluster) -> dict[str, Any]:
    """Measure the batch durations of running queries, and the latency of records."""
    sessions = {source: Session(source, "recommended", cluster) for source in SOURCES}
    results: dict[str, Any] = {"batches": {}, "latency": {}}
    topic = fill(cluster, "none", CASE_RECORDS)
    for size, count in BATCH_SIZES.items():
        runs = alternate(sessions, {"kind": "batches", "topic": topic, "size": size, "count": count}, 3, 1)
        results["batches"][str(size)] = {
            source: statistics.median(r["milliseconds"] for r in runs[source]) for source in SOURCES
        }
    for partitions, size, count in WIDE_BATCHES:
        wide = fill(cluster, "none", 200_000, partitions=partitions)
        runs = alternate(sessions, {"kind": "batches", "topic": wide, "size": size, "count": count}, 3, 1)
        results["batches"][f"{size}, {partitions:,} partitions"] = {
            source: statistics.median(r["milliseconds"] for r in runs[source]) for source in SOURCES
        }
    latency_topic = cluster.create_topic("bench-latency", PARTITIONS)
    partitions = [TopicPartition(latency_topic, number) for number in range(PARTITIONS)]
    load = SteadyLoad(cluster.new_admin(), partitions, per_second=LATENCY_RATE, batch=50, width=VALUE_SIZE)
    try:
        runs = alternate(sessions, {"kind": "latency", "topic": latency_topic, "seconds": LATENCY_SECONDS}, 2)
    finally:
        load.stop()
    for source in SOURCES:
        results["latency"][source] = {key: statistics.median(r[key] for r in runs[source]) for key in ("p50", "p99")}
        sessions[source].close()
    return results


def alternate(
    sessions: Mapping[str, Session | Receiver], case: dict[str, Any], runs: int, warm_up: int = 0
) -> dict[str, list[dict[str, float]]]:
    """Run a case in all sessions alternately, and return the figures of ``runs`` runs after ``warm_up`` runs."""
    figures: dict[str, list[dict[str, float]]] = {source: [] for source in sessions}
    for number in range(warm_up + runs):
        for source in sessions if number % 2 else reversed(sessions):
            run = sessions[source].run(case)
            if number >= warm_up:
                figures[source].append(run)
    return figures


class Session:
    """A process that runs cases in a Spark session; see ``bench.spark_stream``."""

    def __init__(self, source: str, conf: str, cluster: DevCluster) -> None:
        self._log = (cluster.folder / f"bench-{conf}-{source}.log").open("w+")
        arguments = source, conf, cluster.zookeeper_connect, cluster.bootstrap_servers
        command = [sys.executable, "-m", "bench.spark_stream", *arguments]
        self._process = subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    def run(self, case: dict[str, Any]) -> dict[str, float]:
        """Run ``case`` once, and return its figures."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the query failed:\n{self._log.read()[-4000:]}")
        return json.loads(line)

    def close(self) -> None:
        """Stop the process."""
        self._process.communicate(timeout=60)
        self._log.close()


class Receiver:
    """Receives the topic of a case without Spark and without decoding it; see ``bench.limit``."""

    def __init__(self, cluster: DevCluster) -> None:
        self._cluster = cluster

    def run(self, case: dict[str, Any]) -> dict[str, float]:
        """Receive the topic once; ``triggerExecution`` is the time in seconds, as of the sessions."""
        found = read_plain(self._cluster, LIMIT, case["topic"], case["records"])
        return {"records": found["records"], "triggerExecution": found["seconds"]}

    def close(self) -> None:
        """Do nothing; each run is a process of its own."""


def memory(cluster: DevCluster, topic: str, seconds: float, rounds: int) -> dict[str, Any]:
    """Compare reading all eight partitions with reading seven of them: first a backlog, then 100,000 records/s.

    Args:
        seconds: duration of the load in the last round; it is 5 s in earlier rounds.
    """
    results: dict[str, Any] = {}
    runs: dict[str, list[dict[str, Any]]] = {"all": [], "seven": []}
    warm = fill(cluster, "none", 20_000)
    for number in range(rounds):
        for mode in ("all", "seven") if number % 2 else ("seven", "all"):
            stop = threading.Event()
            load = threading.Thread(target=_write_steadily, args=(cluster, topic, stop), daemon=True)
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


def _write_steadily(cluster: DevCluster, topic: str, stop: threading.Event) -> None:
    with cluster.new_admin() as admin:
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            due += 0.08
            for partition in range(PARTITIONS):
                admin.produce(TopicPartition(topic, partition), numbered_batch(0, 1000))


def machine() -> dict[str, Any]:
    """Return the hardware and the Python version."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = next((x.split(":")[1].strip() for x in cpuinfo.read_text().splitlines() if "model name" in x), model)
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version()}


def store(results: dict[str, Any], part: str, figures: Any) -> None:
    """Replace the stored results of a part."""
    results[part] = figures
    results.setdefault("measured", {})[part] = time.strftime("%F %R")
    report.save(results)


def main() -> None:
    """Run the selected parts."""
    parser = argparse.ArgumentParser("bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"parts to run: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs per client (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="seconds of load in the memory part (default: %(default)s)"
    )
    options = parser.parse_args()
    if unknown := sorted(set(options.parts) - set(PARTS)):
        parser.error(f"unknown part {unknown[0]!r}; valid parts: {', '.join(PARTS)}")
    results = report.load()
    results["machine"] = machine()
    parts = options.parts or list(PARTS)
    if "decoder" in parts:
        store(results, "decoder", decoder.run())
    if set(parts) - {"decoder"}:
        with DevCluster(brokers=2) as cluster:
            if "plain" in parts:
                store(results, "plain", plain(cluster, options.rounds))
            if "spark" in parts:
                topics = {codec: fill(cluster, codec) for codec in CODECS}
                store(results, "spark", spark(cluster, topics, options.rounds))
            if "cases" in parts:
                store(results, "cases", cases(cluster, options.rounds))
            if "batches" in parts:
                store(results, "batches", batches(cluster))
            if "memory" in parts:  # runs last, because it adds records to a topic
                store(results, "memory", memory(cluster, fill(cluster), options.seconds, options.rounds))
    print(report.table(results))


if __name__ == "__main__":
    with stopping_children():
        main()
