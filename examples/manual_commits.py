"""Commit offsets after writing the results: ``python examples/manual_commits.py consumer.properties orders out``.

If the process is killed, the messages since the last commit are consumed again, and no message is lost.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from zkconsumer import ConsumerConfig, MessageAndMetadata, TopicPartition, ZookeeperConsumerConnector, create_consumer
from zkconsumer.errors import ConsumerTimeoutError, OwnershipLostError

BATCH_SIZE = 10


def write(consumer: ZookeeperConsumerConnector, messages: Sequence[MessageAndMetadata], output: Path) -> None:
    """Append messages to a file, then commit their offsets."""
    with output.open("ab") as file:
        file.writelines(message.value + b"\n" for message in messages)
    next_offsets = {TopicPartition(message.topic, message.partition): message.offset + 1 for message in messages}
    try:
        consumer.commit_offsets(next_offsets)
    except OwnershipLostError as error:
        print(f"{error}; another member consumes these messages again", file=sys.stderr)
    else:
        print(f"{len(messages)} messages written and committed")


def main(properties: str, topic: str, output: str) -> None:
    """Write and commit ten messages at a time."""
    config = ConsumerConfig.from_properties(properties, {"auto.commit.enable": "false"})
    pending: list[MessageAndMetadata] = []
    with create_consumer(config) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        try:
            for message in stream:
                pending.append(message)
                if len(pending) == BATCH_SIZE:
                    write(consumer, pending, Path(output))
                    pending = []
        except ConsumerTimeoutError:
            if pending:
                write(consumer, pending, Path(output))


if __name__ == "__main__":
    main(*sys.argv[1:])
