"""The command ``zkconsumer``; each tool is a subcommand, with Kafka's options if it corresponds to a Kafka tool."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence

from zkconsumer.errors import BrokerUnavailableError, RetriableError, ZkConsumerError, ZooKeeperUnavailableError
from zkconsumer.log import show_level
from zkconsumer.tools import (
    check_config,
    cluster,
    cluster_state,
    console_consumer,
    consumer_perf,
    doctor,
    groups,
    migrate_offsets,
    offset_checker,
    output,
    pack_for_spark,
    simple_consumer_shell,
    watch,
    zookeeper_offsets,
)
from zkconsumer.tools.arguments import ToolParser
from zkconsumer.tools.failures import ExitCode, print_error
from zkconsumer.tools.output import OutputClosedError, OutputError
from zkconsumer.version import __version__


def argument_parser() -> argparse.ArgumentParser:
    """Return the command-line parser of all tools."""
    parser = ToolParser("zkconsumer", description="Tools for ZooKeeper-coordinated consumer groups.")
    parser.add_argument("--version", action="version", version=f"zkconsumer {__version__}")
    tools = parser.add_subparsers(dest="tool", metavar="TOOL", required=True)
    for tool in (
        console_consumer,
        offset_checker,
        zookeeper_offsets,
        groups,
        consumer_perf,
        simple_consumer_shell,
        migrate_offsets,
        pack_for_spark,
        doctor,
        watch,
        check_config,
        cluster,
    ):
        tool.add_to(tools)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a tool and return its exit code.

    Args:
        arguments: command-line arguments; None for ``sys.argv[1:]``.
    """
    name = "zkconsumer"
    try:
        options = _parse(arguments)
        name = f"zkconsumer {options.tool}"
        code = _run(options)
        output.flush()
        return code
    except OutputClosedError:
        return ExitCode.SUCCESS
    except OutputError as error:
        output.note(f"{name}: {error}")
        return ExitCode.PROBLEM
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; exit after ``--help`` and ``--version``, and with code 2 if an argument is invalid."""
    try:
        options, unknown = argument_parser().parse_known_args(arguments)
        if unknown:
            options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit:
        output.flush()
        raise
    return options


def _run(options: argparse.Namespace) -> int:
    """Run a tool, print its error if there is one, and return its exit code."""
    show_level(getattr(logging, options.log_level.upper()))
    try:
        return int(options.run(options))
    except ZkConsumerError as error:
        for line in f"zkconsumer {options.tool}: {error}".split("\n"):
            output.note(line)
        if isinstance(error, (ZooKeeperUnavailableError, BrokerUnavailableError)):
            _suggest_cluster(options)
        if getattr(options, "json", False):
            print_error(type(error).__name__, str(error), retriable=isinstance(error, RetriableError))
        return ExitCode.of(error)


def _suggest_cluster(options: argparse.Namespace) -> None:
    """Print the options for connecting to the development cluster, if one is running."""
    names = {name for action in options.parser._actions for name in action.option_strings}
    if text := cluster_state.hint(names, [value for value in vars(options).values() if isinstance(value, str)]):
        output.note(f"    {text}")


if __name__ == "__main__":
    sys.exit(main())
