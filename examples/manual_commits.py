"""Consume JSON, and commit offsets only after the results are stored; stop on SIGTERM and Ctrl-C.

``python examples/manual_commits.py consumer.properties orders out.jsonl``. No message is lost. Messages are stored
again only if the program is killed, or if their partition moves to another member, before their offsets are committed.
"""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zkconsumer import (
    ConsumerConfig,
    KafkaStream,
    MessageAndMetadata,
    TopicPartition,
    ZookeeperConsumerConnector,
    create_consumer,
)
from zkconsumer.errors import ConsumerTimeoutError, OwnershipLostError, RetriableError

BATCH_SIZE = 10


def read_batches(stream: KafkaStream[bytes, Any]) -> Iterator[list[MessageAndMetadata[bytes, Any]]]:
    """Yield lists of ``BATCH_SIZE`` messages, or fewer if no message arrives in time or the consumer is stopped."""
    has_ended = False
    while not has_ended:
        batch: list[MessageAndMetadata[bytes, Any]] = []
        try:
            while len(batch) < BATCH_SIZE:
                batch.append(next(stream))
        except ConsumerTimeoutError:
            pass  # no message arrived within consumer.timeout.ms
        except StopIteration:
            has_ended = True  # after consumer.stop()
        yield batch


def store(batch: list[MessageAndMetadata[bytes, Any]], output: Path) -> None:
    """Append the messages to a file; skip messages that are not JSON."""
    with output.open("a") as file:
        for message in batch:
            try:
                order = message.value
            except ValueError as error:
                print(f"skipped {message.topic}-{message.partition}@{message.offset}: {error}", file=sys.stderr)
            else:
                file.write(json.dumps(order) + "\n")


def commit(consumer: ZookeeperConsumerConnector, offsets: dict[TopicPartition, int]) -> None:
    """Commit the offsets of owned partitions, and clear ``offsets``. After a failure, the next call commits them."""
    for partition in offsets.keys() - consumer.assignment.keys():
        del offsets[partition]  # the new owner consumes these messages again
    if not offsets:
        return
    try:
        consumer.commit_offsets(offsets)
    except RetriableError as error:
        print(f"not committed yet: {error}", file=sys.stderr)
        return
    except OwnershipLostError as error:
        print(f"{error}; the new owners consume these messages again", file=sys.stderr)
    offsets.clear()


def main(properties: str, topic: str, output: str) -> None:
    """Store and commit batches until the process receives a signal."""
    # With the timeout, an incomplete batch is stored after a second without messages.
    overrides = {"auto.commit.enable": "false", "consumer.timeout.ms": "1000"}
    config = ConsumerConfig.from_properties(properties, overrides, strict=True)
    offsets: dict[TopicPartition, int] = {}
    with create_consumer(config) as consumer:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: consumer.stop())
        stream = consumer.stream(topic, value_decoder=json.loads)
        for batch in read_batches(stream):
            if batch:
                store(batch, Path(output))
                offsets |= {TopicPartition(one.topic, one.partition): one.offset + 1 for one in batch}
            commit(consumer, offsets)


if __name__ == "__main__":
    main(*sys.argv[1:])
