"""State files and application files of earlier versions, continued with the present code.

A state file contains store pages, and the snapshots of tasks and of the driver. See ``tests/spark/data/README.rst``.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from helpers.old_versions import (
    APPLICATION_VERSIONS,
    DATA,
    QUERY_VERSIONS,
    VERSIONS,
    find_data,
    import_topology,
)

from zkconsumer.spark.streams.checkpoint import StoredApplication
from zkconsumer.spark.streams.checkpoint_directory import FILE
from zkconsumer.topology import TopologyTestDriver

MODULES = {"topology": "state_stores", "dsl": "dsl_stores"}


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("version", VERSIONS)
def test_old_state_file_is_read_and_continued(version: str, kind: str, tmp_path: Path) -> None:
    module, folder, path = import_topology(MODULES[kind]), find_data(version) / kind, tmp_path / "state"
    path.write_bytes(gzip.decompress((folder / "state.gz").read_bytes()))
    expected = json.loads(gzip.decompress((folder / "contents.json.gz").read_bytes()))

    with TopologyTestDriver(module.build_topology(), module.CONFIG, state_file=path) as driver:
        assert module.read_stores(driver) == expected["stored"]
        module.continue_records(driver)
        assert module.read_stores(driver) == expected["continued"]
        assert module.read_output(driver) == expected["output"]
    with TopologyTestDriver(module.build_topology(), module.CONFIG, state_file=path) as driver:
        assert module.read_stores(driver) == expected["continued"]


@pytest.mark.parametrize("version", VERSIONS)
def test_old_application_file_is_continued(version: str) -> None:
    module, group = import_topology("state_stores"), f"old-streams-{version}"
    counts = {f"{group}-{topic}": count for topic, count in module.TOPICS.items()}
    resolved = module.build_topology(group).resolve(counts)
    subtopologies = {number: one for number, one in resolved.subtopologies.items() if not one.is_global}
    text = (find_data(version) / "streams" / "checkpoint" / FILE).read_text()

    continued = StoredApplication.from_json(text, FILE).continue_with(group, subtopologies, "checkpoint")

    assert continued.to_json() == text


def test_all_old_data_is_tested() -> None:
    tested = {*VERSIONS, *QUERY_VERSIONS, *APPLICATION_VERSIONS}
    assert sorted(DATA.glob("checkpoints-*")) == sorted(map(find_data, tested))
