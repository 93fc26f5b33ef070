"""PartitionErrors: handles fetch responses that contain no usable records for a partition."""

from __future__ import annotations

import struct
from collections.abc import Callable

from zkconsumer.broker import protocol
from zkconsumer.broker.error_codes import broker_error, error_name
from zkconsumer.errors import CorruptRecordError, MessageSizeTooLargeError, OffsetOutOfRangeError, ZkConsumerError
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.fetch_settings import FetchSettings
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.partition_map import PartitionMap
from zkconsumer.fetcher.requests import FetchRequests
from zkconsumer.log import Logger
from zkconsumer.log_ends import EARLIEST, LATEST

#: Maximum bytes to which a fetch is enlarged for a large batch, unless ``fetch.message.max.bytes`` is larger. By
#: default, brokers reject larger produce requests (``socket.request.max.bytes``).
_MAX_ENLARGED_FETCH_BYTES = 100 << 20

#: Offset field and size field of an entry.
_ENTRY_START = struct.Struct(">qi")


class PartitionErrors:
    """Handles errors of individual partitions; used by the fetcher thread.

    The methods return False if the partition's leader must be looked up again.

    Args:
        requests: requests to the broker, used to look up offsets.
        settings: fetch settings, which limit the fetch size.
        partition_map: partitions of the fetcher. Partitions that wait for their reader are removed from it.
        on_failure: function that is called with a partition and the error to raise to its reader.
        log: logger of the fetcher.
    """

    def __init__(
        self,
        requests: FetchRequests,
        settings: FetchSettings,
        partition_map: PartitionMap,
        on_failure: Callable[[PartitionTopicInfo, ZkConsumerError], None],
        log: Logger,
    ) -> None:
        self._requests = requests
        self._settings = settings
        self._partition_map = partition_map
        self._on_failure = on_failure
        self._log = log

    def handle(self, info: PartitionTopicInfo, error_code: int) -> bool:
        """Handle a partition's error code in a fetch response."""
        if error_code == protocol.OFFSET_OUT_OF_RANGE:
            return self.handle_offset_out_of_range(info)
        topic, partition = info.partition
        if error_code == protocol.CORRUPT_MESSAGE:
            error = CorruptRecordError(
                f"topic {topic!r} partition {partition} offset {info.fetch_offset}: broker {self._requests.endpoint} "
                "cannot read its log at this offset: CORRUPT_MESSAGE (2). The batch is fetched again; if the error "
                "persists, restore the partition from a replica (to skip the batch instead, commit an offset after the "
                "corrupt batch)",
                info.fetch_offset,
            )
            self._on_failure(info, error)
        else:
            self._record_problem(info, error_code)
        return False

    def _record_problem(self, info: PartitionTopicInfo, error_code: int) -> None:
        """Record why the broker does not return records, and log each new reason once."""
        topic, partition = info.partition
        endpoint = self._requests.endpoint
        error = broker_error(error_code, f"could not fetch partition {info.partition} from broker {endpoint}")
        if info.record_problem("fetch_failed", error):
            log = self._log.warning if error_code == protocol.TOPIC_AUTHORIZATION_FAILED else self._log.info
            log(
                "partition_fetch_failed",
                topic=topic,
                partition=partition,
                error=error_name(error_code),
                error_code=error_code,
            )

    def handle_offset_out_of_range(self, info: PartitionTopicInfo) -> bool:
        """Reset the fetch offset, or raise an error to the reader if ``auto.offset.reset`` does not apply.

        Source: Kafka 1.1 ConsumerFetcherThread.handleOffsetOutOfRange.
        """
        topic, partition = info.partition
        if info.auto_offset_reset is not None:
            self._log.warning("offset_out_of_range", topic=topic, partition=partition, offset=info.fetch_offset)
            is_repeated = info.fetch_offset == info.reset_offset
            info.fetch_offset = -1  # looked up before the next request
            return not is_repeated  # back off if the broker rejects the offset that it returned
        (start_error, start), (end_error, end) = (
            self._requests.list_offsets([info.partition], timestamp)[info.partition] for timestamp in (EARLIEST, LATEST)
        )
        if start_error or end_error:
            return False
        error = OffsetOutOfRangeError(
            f"topic {topic!r} partition {partition}: offset {info.fetch_offset} is out of range; the log start "
            f"offset is {start} and the end offset is {end}",
            start,
            end,
        )
        self._on_failure(info, error)
        self._partition_map.remove_infos([info])
        return True

    def handle_incomplete_batch(
        self, info: PartitionTopicInfo, data: protocol.PartitionData, fetch_size: int, *, is_truncated: bool
    ) -> bool:
        """Handle data without a complete batch: the batch exceeds the fetch size, or its header is corrupt.

        See docs/decisions/07-records-larger-than-a-fetch.rst.

        Args:
            fetch_size: maximum bytes requested for the partition.
            is_truncated: whether the broker truncates batches that are larger than ``fetch_size``.
        """
        topic, partition = info.partition
        if not is_truncated or len(data.records) < fetch_size:
            # The broker did not truncate the data, so the data is corrupt. The reader raises the error.
            info.queue.put(Chunk(info.partition, info.fetch_offset, info.fetch_offset, data.records))
            self._partition_map.remove_infos([info])
            return True
        needed = 2 * fetch_size
        if len(data.records) >= _ENTRY_START.size:
            needed = max(_ENTRY_START.size + _ENTRY_START.unpack_from(data.records)[1], fetch_size + 1)
        limit = max(self._settings.fetch_message_max_bytes, _MAX_ENLARGED_FETCH_BYTES)
        if needed <= limit:
            info.own_fetch_size, info.is_slow = needed, False
            self._log.info(
                "record_too_large", topic=topic, partition=partition, offset=info.fetch_offset, fetch_size=needed
            )
            return True
        error = MessageSizeTooLargeError(
            f"topic {topic!r} partition {partition} offset {info.fetch_offset}: the next record is {needed} bytes "
            f"according to its size field, but the limit is {limit} bytes; increase "
            "fetch.message.max.bytes (if the record is corrupt, commit an offset after it)"
        )
        self._on_failure(info, error)
        return False
