"""Part ``latency``: time from producer to application, at several rates.

Each value contains the time just before its batch was sent. The load writes a batch to each partition every 8 ms. Both
plain clients have the same fetch settings, and return one message at a time; ``python -m bench.latency CLIENT ZOOKEEPER
BROKERS TOPIC`` runs one of them. For Spark, the part ``batches`` uses the same load.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from statistics import median

import numpy as np

from bench.grid import grid
from bench.paced_load import PacedLoad
from bench.topics import PARTITIONS, VALUE_SIZE
from zkconsumer.devcluster import Admin, DevCluster
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.message import TopicPartition

RATES = 1_000, 10_000, 100_000

#: Time before the measurement, and its duration, in seconds.
WARM_UP_S, MEASURED_S = 3.0, 10.0

#: Time between the batches of a partition, in seconds.
INTERVAL_S = 0.008

#: Maximum time that a broker waits for new records, and number of bytes for which it waits.
FETCH_WAIT_MS, FETCH_MIN_BYTES = 100, 1


def start_load(cluster: DevCluster, topic: str, rate: int) -> PacedLoad:
    """Start a load of ``rate`` records per second, evenly to all partitions.

    The value of each record is the time just before it was sent, in microseconds since the epoch, in decimal digits.
    """
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    count = max(1, round(rate * INTERVAL_S / PARTITIONS))

    def produce(admin: Admin) -> None:
        records = numbered_batch(time.time_ns() // 1000, count, step=0, size=VALUE_SIZE)
        admin.produce_all(dict.fromkeys(partitions, records))

    return PacedLoad(cluster.new_admin(), INTERVAL_S, produce)


def zkconsumer(zookeeper: str, _brokers: str, topic: str) -> Iterator[bytes]:
    """Yield the values that zkconsumer reads."""
    from zkconsumer import ConsumerConfig, create_consumer

    config = ConsumerConfig.from_dict(
        {
            "group.id": f"bench-{uuid.uuid4().hex[:8]}",
            "zookeeper.connect": zookeeper,
            "auto.offset.reset": "largest",
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "fetch.min.bytes": FETCH_MIN_BYTES,
        }
    )
    with create_consumer(config) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        for message in stream:
            yield message.value


def confluent(_zookeeper: str, brokers: str, topic: str) -> Iterator[bytes]:
    """Yield the values that confluent-kafka reads."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": f"bench-{uuid.uuid4().hex[:8]}",
            "auto.offset.reset": "latest",
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "fetch.min.bytes": FETCH_MIN_BYTES,
            "check.crcs": True,
            "socket.nagle.disable": True,
        }
    )
    consumer.subscribe([topic])
    try:
        while True:
            if (message := consumer.poll(1.0)) is not None:
                yield message.value()
    finally:
        consumer.close()


CLIENTS = {"zkconsumer": zkconsumer, "confluent-kafka": confluent}


def measure_client(name: str, zookeeper: str, brokers: str, topic: str) -> dict[str, float]:
    """Run a client, and return percentiles of its latency in milliseconds, its record count and CPU usage in cores."""
    latencies: list[int] = []
    started = used = 0.0
    for value in CLIENTS[name](zookeeper, brokers, topic):
        now = time.time_ns()
        if not started:
            started = now / 1e9
        elapsed = now / 1e9 - started
        if elapsed < WARM_UP_S:
            used = time.process_time()
        elif elapsed < WARM_UP_S + MEASURED_S:
            latencies.append(now // 1000 - int(value))
        else:
            break
    percentiles = {f"p{share}": float(np.percentile(latencies, share)) / 1000 for share in (50, 99)}
    cores = (time.process_time() - used) / MEASURED_S
    return {**percentiles, "records": len(latencies), "cores": cores}


def measure(cluster: DevCluster, rounds: int) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Run the clients alternately at each rate, and return the figures of each run by rate and client."""
    return {str(rate): _measure_rate(cluster, rate, rounds) for rate in RATES}


def _measure_rate(cluster: DevCluster, rate: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in CLIENTS}
    topic = cluster.create_topic(f"bench-latency-{rate}", PARTITIONS)
    load = start_load(cluster, topic, rate)
    try:
        for number in range(rounds):
            for name in list(CLIENTS)[:: -1 if number % 2 else 1]:
                servers = cluster.zookeeper_connect, cluster.bootstrap_servers
                command = [sys.executable, "-m", "bench.latency", name, *servers, topic]
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
                if done.returncode:
                    raise RuntimeError(f"{name} failed:\n{done.stderr[-4000:]}")
                runs[name].append(json.loads(done.stdout))
                print(f"  {rate:,} records/s, {name}: {runs[name][-1]}", file=sys.stderr, flush=True)
    finally:
        load.stop()
    return runs


def table(results: dict[str, dict[str, list[dict[str, float]]]]) -> str:
    """Return the medians as a reStructuredText table. ``results`` contains the runs by rate and client."""
    rows = []
    for rate, runs in results.items():
        medians = {name: {key: median(run[key] for run in found) for key in found[0]} for name, found in runs.items()}
        own, peer = (medians[name] for name in CLIENTS)
        for key in ("p50", "p99"):
            found = [run[key] for run in runs["zkconsumer"]]
            cells = f"{own[key]:.2f}", f"{min(found):.2f} to {max(found):.2f}", f"{peer[key]:.2f}"
            cores = f"{own['cores']:.2f}", f"{peer['cores']:.2f}"
            rows.append((f"{int(rate):,}", key, *cells, f"{own[key] / peer[key]:.2f}", *cores))
    header = (
        *("producer to message, records/s", "percentile", "zkconsumer, ms", "range", "confluent-kafka, ms"),
        *("ratio", "cores of zkconsumer", "cores of confluent-kafka"),
    )
    return grid(header, rows)


if __name__ == "__main__":
    print(json.dumps(measure_client(*sys.argv[1:5])))
