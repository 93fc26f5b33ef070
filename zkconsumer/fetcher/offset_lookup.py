"""Looks up the start offsets of partitions whose fetch offset is unknown."""

from __future__ import annotations

from collections.abc import Iterable

from zkconsumer.broker.error_codes import error_name
from zkconsumer.fetcher.chunk import PositionChanged
from zkconsumer.fetcher.partition import RESET_TIMESTAMPS, PartitionTopicInfo
from zkconsumer.fetcher.requests import FetchRequests
from zkconsumer.log import Logger


def resolve_offsets(
    requests: FetchRequests, infos: Iterable[PartitionTopicInfo], log: Logger
) -> list[PartitionTopicInfo]:
    """Look up unknown fetch offsets according to ``auto.offset.reset``; return the partitions that failed.

    The partitions' readers receive the offsets as ``PositionChanged``.
    """
    unknown: dict[str, list[PartitionTopicInfo]] = {}
    for info in infos:
        if info.fetch_offset < 0:
            unknown.setdefault(info.auto_offset_reset or "largest", []).append(info)
    failed = []
    for reset, infos_to_reset in unknown.items():
        offsets = requests.list_offsets([info.partition for info in infos_to_reset], RESET_TIMESTAMPS[reset])
        for info in infos_to_reset:
            topic, partition = info.partition
            error, offset = offsets[info.partition]
            if error or offset < 0:
                log.warning(
                    "offset_lookup_failed",
                    topic=topic,
                    partition=partition,
                    error=error_name(error),
                    error_code=error,
                )
                failed.append(info)
                continue
            info.fetch_offset = offset
            if offset == info.reset_offset:
                continue  # the reader already received this offset
            log.info("offset_reset", topic=topic, partition=partition, offset=offset, auto_offset_reset=reset)
            if info.start_offset < 0:
                info.start_offset = offset
            info.reset_offset = offset
            info.starts_at_batch = False
            info.queue.put(PositionChanged(info.partition, offset))
    return failed
