"""How often and how long a consumer retries a commit to Kafka."""

from __future__ import annotations

import threading

from tenacity import Retrying, retry_if_exception, sleep_using_event, stop_after_attempt, wait_fixed

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import RetriableError, ZooKeeperUnavailableError


def create_retrying(config: ConsumerConfig, abort: threading.Event, *, retries: bool) -> Retrying:
    """Return a retry policy for commits to Kafka; ``abort`` interrupts the back-off."""
    return Retrying(
        retry=retry_if_exception(_is_retriable_kafka_error),
        wait=wait_fixed(config.offsets_channel_backoff_s),
        stop=stop_after_attempt(1 + (config.offsets_commit_max_retries if retries else 0)),
        sleep=sleep_using_event(abort),
        reraise=True,
    )


def _is_retriable_kafka_error(error: BaseException) -> bool:
    return isinstance(error, RetriableError) and not isinstance(error, ZooKeeperUnavailableError)
