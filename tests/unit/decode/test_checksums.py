"""Tests of CRC-32C."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.fetcher import _decode, decode_py

_ISCSI_READ = bytes.fromhex(
    "01c0" + "00" * 14 + "14000000" + "00000400" + "00000014" + "00000018" + "28" + "00" * 7 + "02" + "00" * 7
)


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0x00000000),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (
            _ISCSI_READ,
            0xD9963A56,
        ),
    ],
    ids=["nothing", "digits", "32 zeros", "32 ones", "rising", "falling", "an iSCSI command"],
)
def test_crc32c_equals_rfc_3720(twin: Any, data: bytes, crc: int) -> None:
    assert twin.crc32c(data) == crc


@given(data=st.binary(max_size=200), start=st.integers(0, 9))
def test_decoders_agree_on_crc32c_at_any_alignment(data: bytes, start: int) -> None:
    assert _decode.crc32c(memoryview(data)[start:]) == decode_py.crc32c(memoryview(data)[start:])


@pytest.mark.parametrize("size", [767, 768, 769, 6143, 6144, 6145, 6151, 6152, 6911, 6912, 12287, 12288, 20001])
def test_decoders_agree_on_crc32c_of_long_data(size: int) -> None:
    """The compiled function uses three lanes of 2048 bytes, then three lanes of 256 bytes."""
    data = random.Random(size).randbytes(size + 3)
    for start in (0, 3):
        view = memoryview(data)[start : start + size]
        assert _decode.crc32c(view) == decode_py.crc32c(view)
