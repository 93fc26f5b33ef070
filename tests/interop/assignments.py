"""Compute the assignments of random groups with the JVM's own assignors and a real ZooKeeper.

``python -m tests.interop.assignments`` writes the results for ``COUNT`` groups into ``ANSWERS``. The unit tests compare
them with the assignors of zkconsumer, and need neither a JVM nor a compiler for that.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from kazoo.client import KazooClient
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from zkconsumer.devcluster.jars import classpath
from zkconsumer.devcluster.java import java
from zkconsumer.devcluster.servers import ZooKeeperServer, kafka_jars, logging_jars
from zkconsumer.javahash import java_hash
from zkconsumer.zookeeper.registry import Registration

COUNT = 2000
ANSWERS = Path(__file__).parents[1] / "unit" / "jvm_assignments.json.gz"

#: Round-robin order by release of the JVM consumer.
RELEASES = {"0.8.2.2": "0.8.2", "0.11.0.3": "0.10.2", "1.1.1": "1.0"}

_GROUP = "g"
#: Result if the JVM throws an exception.
RAISES = "raises"


def random_topics(rng: random.Random) -> dict[str, int]:
    """Return the number of partitions by topic; all partitions have different hashes in each round-robin order."""
    while True:
        topics = {f"{rng.choice('abcdefgh')}{rng.randrange(1000)}": rng.randrange(13) for _ in range(40)}
        texts = [(form, t, p) for t, n in topics.items() for p in range(n) for form in ("{}-{}", "[{},{}]")]
        hashes = {(form, java_hash(form.format(t, p))) for form, t, p in texts}
        if len(hashes) == len(texts):
            return topics


def random_group(rng: random.Random, topics: dict[str, int]) -> dict[str, dict[str, int]]:
    """Return the subscription of each member; in half of the groups all members have the same subscription."""
    names = rng.sample(sorted(topics), rng.randint(1, 4))
    members = [f"{_GROUP}_{rng.randrange(1000)}-{number}" for number in range(rng.randint(1, 5))]
    if rng.random() < 0.5:
        counts = {member: rng.randint(1, 12 if rng.random() < 0.1 else 3) for member in members}
        return {member: dict.fromkeys(names, counts[member]) for member in members}
    return {member: {t: rng.randint(1, 3) for t in rng.sample(names, rng.randint(1, len(names)))} for member in members}


class Assignors:
    """The assignors of one release, in a separate JVM."""

    def __init__(self, release: str, zookeeper: str) -> None:
        self._old = release.startswith("0.8")
        [py4j] = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
        port = launch_gateway(
            jarpath=str(py4j),
            classpath=classpath([*logging_jars(), *kafka_jars(release)]),
            java_path=java(),
            die_on_exit=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        jvm = self._gateway.jvm
        self._package = jvm.kafka.consumer
        if self._old:
            serializer = jvm.java.lang.Class.forName("kafka.utils.ZKStringSerializer$").getField("MODULE$").get(None)
            self._zk = jvm.org.I0Itec.zkclient.ZkClient(zookeeper, 30000, 30000, serializer)
        else:
            self._zk = jvm.kafka.utils.ZkUtils.apply(zookeeper, 30000, 30000, False)

    def close(self) -> None:
        """Stop the JVM."""
        self._gateway.shutdown()

    def answer(self, strategy: str, members: list[str]) -> dict[str, str] | str:
        """Return the thread id by ``topic,partition`` for the currently registered group."""
        assignor = {"range": self._package.RangeAssignor, "roundrobin": self._package.RoundRobinAssignor}[strategy]()
        owners: dict[str, str] = {}
        try:
            for member in members:
                context = self._package.AssignmentContext(_GROUP, member, True, self._zk)
                found = assignor.assign(context)
                owners.update(self._read(found if self._old else found.get(member)))
        except Py4JJavaError as error:
            assert "IllegalArgumentException" in str(error.java_exception), error
            return RAISES
        return dict(sorted(owners.items()))

    @staticmethod
    def _read(found: Any) -> Iterator[tuple[str, str]]:
        text = "" if found is None else found.mkString(";")
        for pair in filter(None, text.split(";")):
            partition, _, thread = pair.partition(" -> ")
            topic, number = partition.strip("[]").replace(",", "-").split("-")
            yield f"{topic},{number}", thread


@contextlib.contextmanager
def ensemble() -> Iterator[tuple[str, KazooClient]]:
    """Start a ZooKeeper; yield its address and a client."""
    with tempfile.TemporaryDirectory() as folder:
        server = ZooKeeperServer(Path(folder))
        server.start()
        client = KazooClient(server.connect)
        try:
            client.start(timeout=20)
            yield server.connect, client
        finally:
            client.stop()
            client.close()
            server.kill()


def answers(count: int, seed: int) -> dict[str, Any]:
    """Return the assignments that the JVM computes for random groups."""
    rng = random.Random(seed)
    topics = random_topics(rng)
    groups = []
    with ensemble() as (connect, zk):
        for topic, size in topics.items():
            partitions = {"version": 1, "partitions": {str(number): [0] for number in range(size)}}
            zk.create(f"/brokers/topics/{topic}", json.dumps(partitions).encode(), makepath=True)
        releases = {release: Assignors(release, connect) for release in RELEASES}
        try:
            for number in range(count):
                members = random_group(rng, topics)
                if number:
                    zk.delete(f"/consumers/{_GROUP}", recursive=True)
                for member, subscription in members.items():
                    zk.create(f"/consumers/{_GROUP}/ids/{member}", Registration(subscription).to_json(), makepath=True)
                found = {
                    strategy: {release: jvm.answer(strategy, list(members)) for release, jvm in releases.items()}
                    for strategy in ("range", "roundrobin")
                }
                groups.append({"members": members, **found})
                if number % 100 == 99:
                    print(f"{number + 1} groups", file=sys.stderr)
        finally:
            for jvm in releases.values():
                jvm.close()
    return {"topics": topics, "groups": groups}


if __name__ == "__main__":
    with gzip.GzipFile(ANSWERS, "wb", mtime=0) as file:
        file.write(json.dumps(answers(COUNT, seed=42), separators=(",", ":")).encode())
