"""The tools of the command ``zkconsumer``. A tool's module is imported only when the tool is used."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from zkconsumer.tools.arguments import ToolParser


class ToolGroup(enum.Enum):
    """Group of tools in the help text; the value is its title."""

    KAFKA = "tools that also exist in Kafka"
    OWN = "further tools"
    CLUSTER = "development cluster"


class Tool(NamedTuple):
    """A tool.

    Attributes:
        name: name of the subcommand.
        summary: one line that describes the tool, without a period.
        group: group in the help text.
        function: ``module:function`` below ``zkconsumer.tools``; the function adds the options to the tool's parser.
    """

    name: str
    summary: str
    group: ToolGroup
    function: str

    def add_options(self, parser: ToolParser) -> None:
        """Import the tool, and add its description, its options and the function that runs it to the parser."""
        module, _, name = self.function.partition(":")
        function = getattr(importlib.import_module(f"zkconsumer.tools.{module}"), name)
        cast("Callable[[ToolParser], None]", function)(parser)
        if self.name in EXAMPLES:
            parser.show_examples(*EXAMPLES[self.name])


_KAFKA, _OWN, _CLUSTER = ToolGroup

TOOLS = (
    Tool(
        "console-consumer",
        "Read data from Kafka topics and write it to standard output",
        _KAFKA,
        "console_consumer:add_options",
    ),
    Tool("offset-checker", "Check the offsets and the lag of a consumer group", _KAFKA, "offset_checker:add_options"),
    Tool("export-offsets", "Export the offsets of consumer groups to a file", _KAFKA, "zookeeper_offsets:add_export"),
    Tool("import-offsets", "Import the offsets in a file into ZooKeeper", _KAFKA, "zookeeper_offsets:add_import"),
    Tool(
        "update-offsets",
        "Set the offsets of a consumer group to the earliest or latest offsets of a topic",
        _KAFKA,
        "zookeeper_offsets:add_update",
    ),
    Tool("consumer-groups", "List, describe or delete consumer groups in ZooKeeper", _KAFKA, "groups:add_groups"),
    Tool(
        "verify-rebalance",
        "Verify that a live member owns each partition of a consumer group",
        _KAFKA,
        "groups:add_verify",
    ),
    Tool(
        "consumer-perf",
        "Measure the throughput of a consumer that reads one topic",
        _KAFKA,
        "consumer_perf:add_options",
    ),
    Tool("simple-consumer-shell", "Read the messages of one partition", _KAFKA, "simple_consumer_shell:add_options"),
    Tool(
        "doctor",
        "Report problems of a consumer group: members, owners, assignment and offsets",
        _OWN,
        "doctor:add_options",
    ),
    Tool("watch", "Monitor the owners, offsets, lag and rates of a consumer group", _OWN, "watch:add_options"),
    Tool(
        "migrate-offsets",
        "Copy the offsets of a consumer group between ZooKeeper, Kafka, Spark checkpoints and JSON",
        _OWN,
        "migrate_offsets:add_options",
    ),
    Tool("check-config", "Check a consumer properties file", _OWN, "check_config:add_options"),
    Tool(
        "pack-for-spark",
        "Create an archive of zkconsumer and its dependencies, for Spark executors on which they are not installed",
        _OWN,
        "pack_for_spark:add_options",
    ),
    Tool("completion", "Print a completion script for a shell", _OWN, "completion:add_options"),
    Tool(
        "cluster",
        "Start, use and stop a development cluster of ZooKeeper and Kafka brokers on this machine",
        _CLUSTER,
        "cluster:add_options",
    ),
)

#: Subcommand that is not shown in the help text; completion scripts call it.
HIDDEN = Tool("list-names", "List the names of groups or topics", _OWN, "completion:add_list_names")

#: Example commands of each tool, shown at the end of its help text.
EXAMPLES = {
    "console-consumer": (
        "zkconsumer console-consumer --zookeeper zk1:2181 --topic orders \\\n  --from-beginning",
        "zkconsumer console-consumer --zookeeper zk1:2181 --whitelist 'orders.*' --json",
    ),
    "offset-checker": ("zkconsumer offset-checker --zookeeper zk1:2181 --group billing",),
    "export-offsets": ("zkconsumer export-offsets --zookeeper zk1:2181 --group billing \\\n  --output-file offsets",),
    "import-offsets": ("zkconsumer import-offsets --zookeeper zk1:2181 --input-file offsets",),
    "update-offsets": ("zkconsumer update-offsets earliest consumer.properties orders",),
    "consumer-groups": (
        "zkconsumer consumer-groups --zookeeper zk1:2181 --list",
        "zkconsumer consumer-groups --zookeeper zk1:2181 --describe --group billing",
    ),
    "verify-rebalance": ("zkconsumer verify-rebalance --zookeeper zk1:2181 --group billing",),
    "consumer-perf": (
        "zkconsumer consumer-perf --zookeeper zk1:2181 --topic orders \\\n  --messages 1000000 --threads 1",
    ),
    "simple-consumer-shell": (
        "zkconsumer simple-consumer-shell --broker-list broker1:9092 --topic orders \\\n"
        "  --partition 0 --offset 100 --max-messages 1",
    ),
    "doctor": (
        "zkconsumer doctor --zookeeper zk1:2181 --group billing",
        "zkconsumer doctor --zookeeper zk1:2181 --group billing --json",
    ),
    "watch": (
        "zkconsumer watch --zookeeper zk1:2181 --group billing",
        "zkconsumer watch --zookeeper zk1:2181 --group billing --count 1 --json",
    ),
    "migrate-offsets": (
        "zkconsumer migrate-offsets --zookeeper zk1:2181 --group billing \\\n  --to kafka --execute",
        "zkconsumer migrate-offsets --zookeeper zk1:2181 --group billing \\\n"
        "  --from zookeeper --to json:offsets.json --execute",
    ),
    "check-config": ("zkconsumer check-config consumer.properties",),
    "pack-for-spark": (
        "zkconsumer pack-for-spark packages.tar.gz",
        "zkconsumer pack-for-spark packages.tar.gz --include protobuf",
    ),
    "completion": ('eval "$(zkconsumer completion bash)"',),
    "cluster": (
        "zkconsumer cluster up --detach --topic orders:4",
        "zkconsumer cluster status --properties",
        "zkconsumer cluster down",
    ),
}
