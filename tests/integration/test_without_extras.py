"""The plain consumer in an installation without extras."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from helpers.aliases import Cluster

from zkconsumer.devcluster.load import CODECS, numbered_batch
from zkconsumer.message import TopicPartition
from zkconsumer.optional_packages import EXTRAS

#: Top-level packages that a base installation does not contain.
PACKAGES = sorted({module.split(".")[0] for modules in EXTRAS.values() for module in modules} | {"numpy", "requests"})

PROGRAM = f"""
import json, sys

for name in {PACKAGES!r}:
    sys.modules[name] = None  # as if the package were not installed

from zkconsumer import ConsumerTimeoutError, create_consumer

counts = [0, 0]
properties = json.loads(sys.argv[1])
for index, group in enumerate(("messages", "batches")):
    with create_consumer(properties | {{"group.id": f"{{properties['group.id']}}-{{group}}"}}) as consumer:
        stream = consumer.stream(sys.argv[2])
        try:
            for item in stream.batches() if group == "batches" else stream:
                counts[index] += item.num_rows if group == "batches" else len(item.value) == 100
        except ConsumerTimeoutError:
            pass
print(json.dumps(counts))
"""


def test_consumer_reads_all_codecs_without_extras(zkconsumer_cluster: Cluster, unique: Callable[[str], str]) -> None:
    topic = unique("t")
    zkconsumer_cluster.create_topic(topic, 1)
    for codec in CODECS:
        zkconsumer_cluster.admin.produce(TopicPartition(topic, 0), numbered_batch(0, 100, codec=codec))
    properties = {
        **zkconsumer_cluster.consumer_properties,
        "group.id": unique("g"),
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": "3000",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(properties), topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [500, 500]
