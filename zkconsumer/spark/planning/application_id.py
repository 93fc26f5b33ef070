"""Consumer ids that identify the Spark application of a member."""

from __future__ import annotations

import dataclasses
import re
import socket
from collections.abc import Iterable

from zkconsumer.config import ConsumerConfig
from zkconsumer.zookeeper.registry import consumer_of, new_consumer_id


def with_application(config: ConsumerConfig, application: int | None) -> ConsumerConfig:
    """Return ``config`` with a new consumer id that ends in ``-spark<application>``.

    Args:
        application: number of the Spark application, unique on this host; None to keep the consumer id.
    """
    if application is None:
        return config
    generated = new_consumer_id(config.group_id).removeprefix(f"{config.group_id}_")
    return dataclasses.replace(config, consumer_id=f"{generated}-spark{application}")


def other_members_of_application(
    consumer_id: str, group_id: str, application: int, thread_ids: Iterable[str]
) -> set[str]:
    """Return the consumer ids of the application's other queries on this host, given the group's thread ids."""
    host = re.escape(socket.gethostname())
    pattern = re.compile(rf"{re.escape(group_id)}_{host}-\d+-[0-9a-f]+-spark{application}")
    return {other for thread in thread_ids if pattern.fullmatch(other := consumer_of(thread))} - {consumer_id}
