"""Runs topologies and scenarios; ``OracleRunner.java`` runs the same with Kafka Streams."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology import (
    ApplicationConfig,
    SinkRecord,
    TaskRuntime,
    Topology,
    TopologyTestDriver,
    handlers,
    serdes,
)

from .comparison import error_classes, is_wrapped
from .declarations import Declarations
from .store_calls import contents

Json = Any

#: Number of partitions of each topic that a sink writes.
PARTITIONS = 3

OUTPUT_HANDLERS = {"fail": handlers.fail, "continue": handlers.log_and_continue}


def pickled(topology: Topology) -> Topology:
    """Return a copy of a topology, as another process gets it."""
    copy = pickle.loads(pickle.dumps(topology))
    assert isinstance(copy, Topology)
    return copy


def describe(request: Json) -> Json:
    """Return what the runner answers to a request without events."""
    topology = pickled(Declarations(request["steps"]).topology)
    groups = {
        str(number): {"sources": sorted(group.sources), "sinks": sorted(group.sinks)}
        for number, group in topology.resolve().topic_groups.items()
        if not group.is_global  # Kafka Streams leaves them out
    }
    return {"describe": topology.describe(), "groups": groups}


def run(request: Json, copy: Callable[[Topology], Topology] = pickled) -> Json:
    """Return what the runner answers to a request with events, from a copy of the topology.

    With ``reopen``, the state is in a file, and a new driver with another copy continues with it at the events of these
    numbers.
    """
    declared = Declarations(request["steps"])
    config = create_config(request.get("config", {}))
    reopen, events = request.get("reopen"), request["events"]
    bounds = [0, *(reopen or ()), len(events)]
    result: Json = {"outputs": [], "dropped": 0, "stores": {}}
    with tempfile.TemporaryDirectory() as folder:
        path = None if reopen is None else f"{folder}/state"
        for part in (events[first:end] for first, end in pairwise(bounds)):
            try:
                driver = PartitionedDriver(copy(declared.topology), config, state_file=path)
            except StreamsError as error:
                return describe_failure(error)
            with driver:
                failure = run_events(driver, part, result, request)
                result["stores"] = all_contents(driver, declared, request)
            if failure is not None:
                if path is not None:
                    with TopologyTestDriver(copy(declared.topology), config, state_file=path) as reopened:
                        assert all_contents(reopened, declared, request) == result["stores"]
                del result["dropped"]
                return {**result, **describe_failure(failure)}
    return result


def create_config(settings: Json) -> ApplicationConfig:
    """Return the configuration of a request."""
    return ApplicationConfig(
        key_serde=serdes.STRING,
        value_serde=serdes.STRING,
        max_task_idle_ms=settings.get("idle", 0),
        deserialization_handler=OUTPUT_HANDLERS[settings.get("deserialization", "fail")],
        processing_handler=OUTPUT_HANDLERS[settings.get("processing", "fail")],
        production_handler=OUTPUT_HANDLERS[settings.get("production", "fail")],
    )


def describe_failure(error: StreamsError) -> Json:
    """Return what the comparison needs to know of an error."""
    return {"error": error_classes(error), "text": str(error), "wrapped": is_wrapped(error)}


def run_events(driver: PartitionedDriver, events: list[Json], result: Json, request: Json) -> StreamsError | None:
    """Feed events, add to the result, and return the error that has stopped the driver."""
    dropped_before = driver.metrics["dropped"]
    for event in events:
        try:
            apply(driver, event)
        except StreamsError as error:
            result["outputs"].append(output(driver, request["outputs"]))
            return error
        result["outputs"].append(output(driver, request["outputs"]))
    result["dropped"] += driver.metrics["dropped"] - dropped_before
    return None


def all_contents(driver: TopologyTestDriver, declared: Declarations, request: Json) -> Json:
    """Return the entries of all stores of a driver."""
    all_stores = driver.get_all_state_stores()
    return {name: contents(declared.kinds[name], store, request["probes"]) for name, store in all_stores.items()}


class PartitionedDriver(TopologyTestDriver):
    """A driver with several partitions of the topics that sinks write; it returns the partitions of output records."""

    def _create_runtime(self) -> TaskRuntime:
        return replace(super()._create_runtime(), partition_count=lambda _topic: PARTITIONS)

    def take_records(self, topic: str) -> list[SinkRecord]:
        """Return the new records of a topic."""
        records = list(self._outputs.get(topic, ()))
        self._outputs.pop(topic, None)
        return records


def output(driver: PartitionedDriver, topics: list[str]) -> list[Json]:
    """Return the new records of the output topics."""
    return sent_records(record for topic in topics for record in driver.take_records(topic))


def sent_records(records: Iterable[SinkRecord]) -> list[Json]:
    """Return what both runners return of output records."""
    return [
        [
            record.topic,
            record.partition,
            decode_data(record.key),
            decode_data(record.value),
            record.timestamp,
            [[name, (value or b"").decode()] for name, value in record.headers],
        ]
        for record in records
    ]


def decode_data(data: bytes | None) -> str | None:
    """Return a key or value as text."""
    return None if data is None else data.decode(errors="backslashreplace")


def apply(driver: TopologyTestDriver, event: Json) -> None:
    """Feed an event."""
    if "advance" in event:
        driver.advance_wall_clock_time(event["advance"])
        return
    headers = [(name, value.encode()) for name, value in event.get("headers", ())]
    driver.create_input_topic(event["topic"]).pipe_input(event["key"], event["value"], event["ts"], headers)
