"""``make bench``: compares zkconsumer with other clients, and writes medians to ``bench/results/``.

``python -m bench [PART ...]`` runs only the given parts; ``--help`` lists them. The clients run alternately, and each
run begins when the machine is idle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from bench import decoder, latency, members, report, start
from bench.child_processes import stopping_children
from bench.idle import read_cpu_seconds, wait_until_idle
from bench.place import describe_place
from bench.plain import DECODED_LIMIT, LIMIT
from bench.topics import PARTITIONS, RECORDS, VALUE_SIZE, fill
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.message import TopicPartition

ROUNDS, MEMBER_ROUNDS = 5, 3

#: Number of uncounted warm-up runs of each Spark query, and seconds without a run after which a session needs another
#: one: the kernel may have reclaimed its memory while a slow client ran.
WARM_UP, MAX_IDLE_S = 3, 10.0
PARTS = ("decoder", "plain", "latency", "members", "start", "cases", "batches", "memory")

#: Options that limit how long Spark's own source waits at the end of each log. The default, 500 ms, would dominate the
#: duration of a short run.
TUNED = {"kafka.fetch.max.wait.ms": "50"}

#: Spark queries over whole topics, by name, with their differences from the first one: 5 million records of 100 bytes
#: in 8 partitions, the noop sink, and Spark's own source with a short wait at the end of each log.
CASES: dict[str, dict[str, Any]] = {
    "100 B": {},
    "1 KB": {"size": 1000, "records": 1_000_000},
    "10 KB": {"size": 10_000, "records": 200_000},
    "200 partitions": {"partitions": 200},
    "1,000 partitions": {"partitions": 1000},
    "lz4": {"codec": "lz4"},
    "zstd": {"codec": "zstd"},
    "option columns=value": {"columns": "value"},
    "select value": {"selects": "value"},
    "windowed count": {"windowed": True},
    "Spark's own with its defaults": {"peer": {}},
    "100,000 records": {"records": 100_000},
}

#: Records of the topics for batches of a running query.
CASE_RECORDS = 2_000_000

#: Records per batch of a running query -> number of batches.
BATCH_SIZES = {8: 30, 1000: 30, 100_000: 20}

#: Batches on topics with more partitions: (partitions, records per batch, number of batches). A batch contains at least
#: one record of each partition.
WIDE_BATCHES = ((200, 1000, 10),)

#: Duration of a run that measures the latency from producer to sink, in seconds, and number of runs.
LATENCY_SECONDS, LATENCY_RUNS = 30, 3

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
#: its records. Two of them read only a part, because reading all records can take minutes. 64 KiB is the default
#: receive buffer size of Kafka's old consumer.
PLAIN_CLIENTS = (
    LIMIT,
    "zkconsumer, Arrow",
    "zkconsumer, messages",
    "confluent-kafka consume(10000)",
    "confluent-kafka consume(10000), without CRC check",
)
FURTHER_CLIENTS = {
    "zkconsumer, Arrow, 64 KiB receive buffer": 1.0,
    "JVM old consumer 1.1.1": 1.0,
    "zkconsumer, messages, decoded": 1.0,
    "confluent-kafka consume(10000), without CRC check, decoded": 1.0,
    "kafkarrow": 0.2,
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


def plain(cluster: DevCluster, names: Collection[str], rounds: int) -> list[dict[str, Any]]:
    """Run the clients without Spark on the selected topics, and return a row for each client and topic."""
    results = []
    for name in names:
        shape = PLAIN_TOPICS[name]
        topic, records = fill(cluster, **shape), shape.get("records", RECORDS)
        shares = dict.fromkeys(PLAIN_CLIENTS, 1.0) | ({} if shape else FURTHER_CLIENTS)
        if "codec" not in shape:
            shares[DECODED_LIMIT] = 1.0
        runs: dict[str, list[dict[str, float]]] = {client: [] for client in shares}
        for number in range(rounds):
            for client in shares if number % 2 else reversed(shares):
                wait_until_idle()
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


def cases(cluster: DevCluster, names: Collection[str], rounds: int) -> dict[str, Any]:
    """Run the selected ``CASES``, and return the medians and the runs of each case."""
    sessions: dict[str, Session | Receiver] = {
        source: Session(source, "recommended", cluster) for source in (*SOURCES, report.FLOOR)
    }
    sessions[LIMIT] = Receiver(cluster)
    results: dict[str, Any] = {}
    for number, name in enumerate(names):
        options = CASES[name]
        records, codec = options.get("records", RECORDS), options.get("codec", "none")
        shape = {key: options[key] for key in ("size", "partitions") if key in options}
        case = {"kind": "whole", "topic": fill(cluster, codec, records, **shape), "records": records}
        case |= {"peer": TUNED} | {
            key: options[key] for key in ("columns", "selects", "windowed", "peer") if key in options
        }
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


def starts(cluster: DevCluster) -> dict[str, list[dict[str, float]]]:
    """Measure the start and the end of queries; see ``bench.start``."""
    sessions = {source: Session(source, "recommended", cluster) for source in (report.OWN_SOURCE, report.FLOOR)}
    topic = fill(cluster, "none", start.RECORDS)
    case = {"kind": "start", "topic": topic, "records": start.RECORDS, "value_size": VALUE_SIZE}
    runs = alternate(sessions, case, start.RUNS, WARM_UP)
    for session in sessions.values():
        session.close()
    return runs


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
    for rate in latency.RATES:
        topic = cluster.create_topic(f"bench-sink-latency-{rate}", PARTITIONS)
        load = latency.start_load(cluster, topic, rate)
        case = {"kind": "latency", "topic": topic, "seconds": LATENCY_SECONDS}
        try:
            runs = alternate(sessions, case, LATENCY_RUNS, is_loaded=True)
        finally:
            load.stop()
        results["latency"][str(rate)] = {
            source: {key: statistics.median(r[key] for r in runs[source]) for key in ("p50", "p99")}
            for source in SOURCES
        }
    for session in sessions.values():
        session.close()
    return results


def alternate(
    sessions: Mapping[str, Session | Receiver],
    case: dict[str, Any],
    runs: int,
    warm_up: int = 0,
    *,
    is_loaded: bool = False,
) -> dict[str, list[dict[str, float]]]:
    """Run a case in all sessions alternately, and return the figures of ``runs`` runs after ``warm_up`` runs.

    Unless the case has a load (``is_loaded``), each run begins when the machine is idle, and a session that was idle
    for ``MAX_IDLE_S`` first runs the case once without being measured. A run also contains the ``cpu seconds`` that all
    processes used, including the brokers.
    """
    figures: dict[str, list[dict[str, float]]] = {source: [] for source in sessions}
    ended = dict.fromkeys(sessions, time.monotonic())
    for number in range(warm_up + runs):
        for source in sessions if number % 2 else reversed(sessions):
            if not is_loaded:
                if time.monotonic() > ended[source] + MAX_IDLE_S:
                    sessions[source].run(case)
                wait_until_idle()
            before = read_cpu_seconds()
            run = sessions[source].run(case)
            if number >= warm_up:
                figures[source].append({**run, "cpu seconds": read_cpu_seconds() - before})
            ended[source] = time.monotonic()
    return figures


class Session:
    """A process that runs cases in a Spark session; see ``bench.spark_stream``.

    Args:
        python: the interpreter of the process, whose environment contains Spark.
    """

    def __init__(self, source: str, conf: str, cluster: DevCluster, python: Path = Path(sys.executable)) -> None:
        self._log = (cluster.folder / f"bench-{conf}-{source}.log").open("w+")
        arguments = source, conf, cluster.zookeeper_connect, cluster.bootstrap_servers
        command = [str(python), "-m", "bench.spark_stream", *arguments]
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


def store(results: dict[str, Any], part: str, figures: Any) -> None:
    """Replace the stored results of a part."""
    results[part] = figures
    results.setdefault("places", {})[part] = describe_place()
    report.save(results)


def main() -> None:
    """Run the selected parts."""
    parser = argparse.ArgumentParser("bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"parts to run: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs per client (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="seconds of load in the memory part (default: %(default)s)"
    )
    for name, what, names in (("topics", "part plain", list(PLAIN_TOPICS)), ("cases", "part cases", list(CASES))):
        text = f"{name} of the {what} (default: all)"
        parser.add_argument(f"--{name}", nargs="+", choices=names, default=names, metavar="NAME", help=text)
    options = parser.parse_args()
    if unknown := sorted(set(options.parts) - set(PARTS)):
        parser.error(f"unknown part {unknown[0]!r}; valid parts: {', '.join(PARTS)}")
    results = report.load()
    parts = options.parts or list(PARTS)
    if "decoder" in parts:
        store(results, "decoder", decoder.run())
    if set(parts) - {"decoder"}:
        with DevCluster(brokers=2) as cluster:
            if "plain" in parts:
                rows = plain(cluster, options.topics, options.rounds)
                rows += [row for row in results.get("plain", []) if row["topic"] not in options.topics]
                store(results, "plain", sorted(rows, key=lambda row: list(PLAIN_TOPICS).index(row["topic"])))
            if "latency" in parts:
                store(results, "latency", latency.measure(cluster, options.rounds))
            if "members" in parts:
                store(results, "members", members.measure(cluster, MEMBER_ROUNDS))
            if "start" in parts:
                store(results, "start", {"queries": starts(cluster), "imports": start.measure_imports()})
            if "cases" in parts:
                found = results.get("cases", {}) | cases(cluster, options.cases, options.rounds)
                store(results, "cases", {name: found[name] for name in CASES if name in found})
            if "batches" in parts:
                store(results, "batches", batches(cluster))
            if "memory" in parts:  # runs last, because it adds records to a topic
                store(results, "memory", memory(cluster, fill(cluster), options.seconds, options.rounds))
    print(report.table(results))


if __name__ == "__main__":
    with stopping_children():
        main()
