"""Runs scenarios of cached stores, as ``runCached`` of ``OracleRunner.java`` does."""

from __future__ import annotations

from typing import Any

from zkconsumer.message import TopicPartition
from zkconsumer.topology import ApplicationConfig, SourceRecord, StreamTask, TaskRuntime, serdes
from zkconsumer.topology.stores import MemoryPages

from .declarations import Declarations
from .programs import PARTITIONS, pickled, sent_records
from .store_calls import call, contents

Json = Any


def run_cached(request: Json) -> Json:
    """Return what the runner answers to a request that commits after a number of records."""
    declared = Declarations(request["steps"])
    config = ApplicationConfig(
        key_serde=serdes.STRING, value_serde=serdes.STRING, statestore_cache_max_bytes=request["cache_bytes"]
    )
    runtime = TaskRuntime(
        clock=lambda: 0,
        pages=lambda _: MemoryPages(),
        commit=int,
        rollback=int,
        partition_count=lambda _topic: PARTITIONS,
    )
    task = pickled(declared.topology).combine().task(0, config, runtime)
    task.initialize()
    events, every = request["events"], request["commit_every"]
    offsets: dict[str, int] = {}
    outputs = []
    reads: list[str] = []
    for first in range(0, len(events) + 1, every):
        for event in events[first : first + every]:
            add_record(task, event, offsets)
        task.update_lags()
        while task.run():
            pass
        if first + every > len(events):
            for _, name, method, *arguments in request["reads"]:
                reads.append(call(task.stores[name], declared.kinds[name], method, arguments))
        outputs.append(sent_records(task.take_output().records()))
        task.commit()
        outputs.append(sent_records(task.take_output().records()))
    found = {name: contents(declared.kinds[name], store) for name, store in task.stores.items()}
    result = {"outputs": outputs, "dropped": task.metrics["dropped"], "reads": reads, "stores": found}
    task.close()
    return result


def add_record(task: StreamTask, event: Json, offsets: dict[str, int]) -> None:
    """Add a record to its queue."""
    offset = offsets[event["topic"]] = offsets.get(event["topic"], -1) + 1
    headers = tuple((name, value.encode()) for name, value in event.get("headers", ()))
    key, value = event["key"].encode(), event["value"].encode()
    record = SourceRecord(event["topic"], 0, offset, event["ts"], key, value, headers)
    task.add_records(TopicPartition(event["topic"], 0), [record])
