"""What an application reads from Spark's files in its checkpoint."""

from __future__ import annotations

import json

import pytest

from zkconsumer.message import TopicPartition
from zkconsumer.spark.offset import BatchOffset
from zkconsumer.spark.streams.checkpoint_directory import QueryProgress, _parse_ends

P = TopicPartition("t", 0)
OFFSET = json.dumps(BatchOffset(ranges={P: (3, 7)}, generation=0).to_json())


@pytest.mark.parametrize(
    ("log", "ends"),
    [
        (f'v1\n{{"conf": {{}}}}\n{OFFSET}\n{{"time": 5}}', {P: 7}),
        (f'v1\n{{"conf": {{}}}}\n{{"time": 5}}\n{OFFSET}', {P: 7}),
        (f"v1\n{{}}\n-\n{OFFSET}", {P: 7}),
        (f'v1\n{{}}\n5\n"text"\n[1]\nnull\n{OFFSET}', {P: 7}),
        ("v1\n{}\n5", {}),
        ("v1", {}),
        ("", {}),
    ],
)
def test_ends_are_those_of_the_record_source(log: str, ends: dict[TopicPartition, int]) -> None:
    assert _parse_ends(log) == ends


@pytest.mark.parametrize(
    ("planned", "finished", "is_interrupted"), [(-1, -1, False), (0, -1, True), (3, 3, False), (4, 3, True)]
)
def test_batch_without_commit_is_repeated(planned: int, finished: int, is_interrupted: bool) -> None:
    assert QueryProgress("q", planned, finished).is_interrupted is is_interrupted
