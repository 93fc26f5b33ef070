"""State files that earlier versions wrote, continued with the present code; see ``tests/spark/data/README.rst``."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from spark.data.state_stores import CONFIG, CONTINUED, build_topology, process_records, read_stores

from zkconsumer.topology import TopologyTestDriver

DATA = Path(__file__).parent.parent / "spark" / "data"
FOLDERS = sorted(DATA.glob("checkpoints-*/topology"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_old_state_file_is_read_and_continued(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(gzip.decompress((folder / "state.gz").read_bytes()))
    expected = json.loads(gzip.decompress((folder / "contents.json.gz").read_bytes()))

    with TopologyTestDriver(build_topology(), CONFIG, state_file=path) as driver:
        assert read_stores(driver) == expected["stored"]
        process_records(driver, CONTINUED)
        assert read_stores(driver) == expected["continued"]
    with TopologyTestDriver(build_topology(), CONFIG, state_file=path) as driver:
        assert read_stores(driver) == expected["continued"]

    with closing(sqlite3.connect(path)) as connection:
        headers = dict(connection.execute("SELECT store, checksum FROM pages WHERE id = 0"))
    assert headers.keys() == expected["stored"].keys()
    assert None not in headers.values()  # pages have checksums when they are written again
