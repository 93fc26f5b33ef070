"""Functions shared by the tools: arguments, connections and files."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from tenacity import Retrying

from zkconsumer import retry
from zkconsumer.broker.connect import Connecting
from zkconsumer.config.consumer_config import ConsumerConfig, read_properties
from zkconsumer.config.properties import property_table
from zkconsumer.config.tables import to_text
from zkconsumer.errors import BrokerUnavailableError, ZkConsumerError
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.base import Cluster
from zkconsumer.offsets.access import Access, open_access
from zkconsumer.tools import output
from zkconsumer.tools.output import OutputClosedError
from zkconsumer.zookeeper import registry

CLIENT_ID = "zkconsumer-tools"

#: Maximum seconds to wait for a broker's response.
_BROKER_TIMEOUT_S = 10.0

#: Maximum time to retry a request, in seconds.
_RETRY_TIMEOUT_S = 15.0

#: Default of ``--zookeeper``, as in Kafka's tools.
LOCAL = "localhost:2181"

#: Environment variable with the default of ``--zookeeper``.
ZOOKEEPER_VARIABLE = "ZKCONSUMER_ZOOKEEPER"

#: Environment variable with the default of ``--command-config``.
CONFIG_VARIABLE = "ZKCONSUMER_COMMAND_CONFIG"


def add_zookeeper(parser: argparse.ArgumentParser, *names: str, is_required: bool = False) -> None:
    """Add ``--zookeeper``.

    Args:
        names: further names of the option, which the corresponding Kafka tool uses.
        is_required: whether the Kafka tool has no default.
    """
    address = os.environ.get(ZOOKEEPER_VARIABLE) or (None if is_required else LOCAL)
    default = f"default: {ZOOKEEPER_VARIABLE}" if is_required else f"default: {ZOOKEEPER_VARIABLE}, or {LOCAL}"
    parser.add_argument(
        *names,
        "--zookeeper",
        dest="zookeeper",
        default=address,
        required=address is None,
        metavar="HOSTS",
        help=f"ZooKeeper servers: host:port,.../chroot ({default})",
    )


def add_group(parser: argparse.ArgumentParser) -> None:
    """Add ``--zookeeper`` and ``--group``, for a tool that operates on one group."""
    add_zookeeper(parser)
    parser.add_argument("--group", required=True, help="consumer group")


def add_json(parser: argparse._ActionsContainer) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON, one object per line")


def add_access(parser: argparse.ArgumentParser, *, brokers: bool = True) -> None:
    """Add ``--command-config`` and, if the tool connects to brokers, ``--bootstrap-server``."""
    parser.add_argument(
        "--command-config",
        default=os.environ.get(CONFIG_VARIABLE) or None,
        metavar="FILE",
        help="properties file with security settings, such as security.protocol and zookeeper.sasl.* "
        f"(default: {CONFIG_VARIABLE})",
    )
    if brokers:
        parser.add_argument(
            "--bootstrap-server", metavar="HOSTS", help="brokers of a cluster in KRaft mode: host:port,..."
        )


def add_consumer_config(parser: argparse.ArgumentParser) -> None:
    """Add ``--consumer.config`` and ``--help-properties``."""
    parser.add_argument("--consumer.config", dest="consumer_config", metavar="FILE", help="consumer properties file")
    add_help_properties(parser)


def add_help_properties(parser: argparse.ArgumentParser) -> None:
    """Add ``--help-properties``, which lists the consumer properties."""
    parser.add_argument(
        "--help-properties",
        action=_ShowProperties,
        nargs=0,
        default=argparse.SUPPRESS,
        help="list the consumer properties and exit",
    )


class _ShowProperties(argparse.Action):
    """Prints the consumer properties, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the properties with their types, defaults and descriptions."""
        output.echo("consumer properties (type, default):")
        for line in to_text(property_table()).splitlines():
            output.echo(line)
        parser.exit()


def positive(text: str) -> int:
    """Parse a positive integer."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, got {text!r}")
    return int(text)


def access(config: ConsumerConfig) -> contextlib.AbstractContextManager[Access]:
    """Connect to the configured ZooKeeper and brokers, using the tools' client id."""
    own = dataclasses.replace(config, client_id=CLIENT_ID)
    return open_access(own, Connecting.from_config(own).with_timeout(_BROKER_TIMEOUT_S))


def read_config(options: argparse.Namespace, hosts: str, group: str = CLIENT_ID) -> ConsumerConfig:
    """Build the configuration for ``hosts`` and ``group`` from ``--command-config`` and ``--bootstrap-server``.

    The group name is not validated, so that a tool can describe and delete any group.
    """
    properties = read_properties(options.command_config) if getattr(options, "command_config", None) else {}
    if getattr(options, "bootstrap_server", None):
        properties["bootstrap.servers"] = options.bootstrap_server
    config = ConsumerConfig.from_dict({**properties, "group.id": CLIENT_ID, "zookeeper.connect": hosts})
    return dataclasses.replace(config, group_id=group)


def read_consumer_properties(path: str | None) -> dict[str, str]:
    """Read a consumer properties file; the file that ``ZKCONSUMER_COMMAND_CONFIG`` names contains the defaults."""
    paths = (os.environ.get(CONFIG_VARIABLE), path)
    return {name: value for one in paths if one for name, value in read_properties(one).items()}


def check_brokers(cluster: Cluster) -> None:
    """Raise ``BrokerUnavailableError`` if no broker is registered; without brokers, partitions cannot be listed."""
    if not cluster.brokers():
        raise BrokerUnavailableError(
            "no broker is registered in ZooKeeper; check the chroot (a cluster in KRaft mode requires "
            "--bootstrap-server)"
        )


def check_topics(cluster: Cluster, topics: Iterable[str]) -> None:
    """Raise ``ToolError`` if any of the topics does not exist."""
    names = list(topics)
    for name in names:
        registry.check_topic_name(name)
    existing = cluster.partitions(names)
    for name in names:
        if name not in existing:
            check_brokers(cluster)
            raise ToolError(f"topic {name!r} does not exist; check the topic name and the ZooKeeper chroot")


def delete_group(config: ConsumerConfig) -> None:
    """Delete the znodes of the configured group."""
    with access(config) as closing:
        closing.session.znodes.delete_tree(registry.GroupPaths(config.group_id).root)


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, which replaces ``path`` at the end of the block unless an error is raised.

    For a device or pipe such as ``/dev/stdout``, which cannot be replaced, ``path`` itself is yielded.

    Raises:
        OutputClosedError: ``path`` is a pipe such as ``/dev/stdout``, and its reader exited.
        ToolError: the file cannot be written.
    """
    is_replaced = os.path.isfile(path) or not os.path.exists(path)
    target = path.resolve() if is_replaced else path
    new = target.with_name(f".{target.name}.{os.getpid()}.new") if is_replaced else path
    try:
        yield new
        if is_replaced:
            if target.exists():
                shutil.copymode(target, new)
            new.replace(target)
    except ConnectionError as error:
        raise OutputClosedError from error
    except OSError as error:
        raise ToolError(f"cannot write {str(path)!r}: {error}") from error
    finally:
        if is_replaced:
            # Deletion also fails if the file could not be created, for example because its name is too long.
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)


def retrying(backoff_s: float = 0.5) -> Retrying:
    """Return a tenacity ``Retrying`` that retries calls that raise ``RetriableError``, for up to 15 seconds.

    The first requests for a group coordinator fail until the brokers have created the offsets topic.

    Args:
        backoff_s: seconds between two attempts.
    """
    return retry.retrying(_RETRY_TIMEOUT_S, interval_s=backoff_s)


class ToolError(ZkConsumerError):
    """Raised when a tool cannot perform its task, for example because a group or topic does not exist."""


def partition_json(
    partition: TopicPartition, offset: int | None, end: int | None, owner: str | None, **more: object
) -> dict[str, object]:
    """Return the JSON object that describes one partition of a group.

    Args:
        offset: committed offset; None or negative if it is missing or unknown.
        end: end offset of the log; None if it is unknown.
        owner: thread id of the owner; None if there is none.
        more: additional keys and values.
    """
    known = None if offset is None or offset < 0 else offset
    lag = None if known is None or end is None else end - known
    names = {"topic": partition.topic, "partition": partition.partition}
    return {**names, "offset": known, "endOffset": end, "lag": lag, "owner": owner, **more}
