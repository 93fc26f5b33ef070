"""The command ``zkconsumer``; each tool is a subcommand, with Kafka's options if it corresponds to a Kafka tool.

Exit codes: 0 success, 1 failure or problems found, 2 invalid arguments, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from zkconsumer.errors import BrokerUnavailableError, ZkConsumerError, ZooKeeperUnavailableError
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
from zkconsumer.tools.output import OutputClosedError
from zkconsumer.tools.printer import OUTPUT_CLOSED
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
    options, unknown = argument_parser().parse_known_args(arguments)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    show_level(getattr(logging, options.log_level.upper()))
    try:
        return _run(options)
    except ZkConsumerError as error:
        for line in f"zkconsumer {options.tool}: {error}".split("\n"):
            output.echo(line, file=sys.stderr)
        if isinstance(error, (ZooKeeperUnavailableError, BrokerUnavailableError)):
            _suggest_cluster(options)
        return 1
    except OutputClosedError:
        output.echo(OUTPUT_CLOSED, file=sys.stderr)
        _discard_output()
        return 1
    except BrokenPipeError:  # the reader of the pipe, such as head, exited
        _discard_output()
        return 1
    except KeyboardInterrupt:
        return 130


def _run(options: argparse.Namespace) -> int:
    """Run a tool, flush its output and return its exit code."""
    code = int(options.run(options))
    if sys.stdout is not None:  # None if the process was started without standard output
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputClosedError from error
    return code


def _discard_output() -> None:
    """Discard buffered output, so that the interpreter's final flush of standard output does not fail."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _suggest_cluster(options: argparse.Namespace) -> None:
    """Print the options for connecting to the development cluster, if one is running."""
    names = {name for action in options.parser._actions for name in action.option_strings}
    if text := cluster_state.hint(names, [value for value in vars(options).values() if isinstance(value, str)]):
        output.echo(f"    {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
