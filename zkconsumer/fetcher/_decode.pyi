from typing import Any

from zkconsumer.fetcher.decode_py import crc32c as crc32c
from zkconsumer.fetcher.decode_py import decode as decode
from zkconsumer.fetcher.decode_py import measure as measure
from zkconsumer.fetcher.decode_py import next_offset as next_offset
from zkconsumer.fetcher.decode_py import scan as scan

def __getattr__(name: str) -> Any: ...
