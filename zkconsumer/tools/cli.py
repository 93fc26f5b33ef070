"""The command ``zkconsumer``; each tool is a subcommand, with Kafka's options if it corresponds to a Kafka tool."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from zkconsumer.errors import BrokerUnavailableError, RetriableError, ZkConsumerError, ZooKeeperUnavailableError
from zkconsumer.tools import output
from zkconsumer.tools.arguments import ToolParser
from zkconsumer.tools.catalogue import HIDDEN, TOOLS, ToolGroup
from zkconsumer.tools.failures import ExitCode, print_error
from zkconsumer.tools.output import OutputClosedError, OutputError


class _CommandParser(ToolParser):
    """Parser of the command; its help text lists the tools in groups.

    Attributes:
        tools: parsers of the tools.
    """

    def __init__(self) -> None:
        super().__init__("zkconsumer", description="Tools for ZooKeeper-coordinated consumer groups.", is_main=True)
        self.epilog = "`zkconsumer help TOOL` or `zkconsumer TOOL --help` describes the options of a tool."
        self.tools: Any = self.add_subparsers(dest="tool", metavar="TOOL", parser_class=ToolParser)
        for tool in TOOLS:
            description = f"{tool.summary}."
            self.tools.add_parser(tool.name, help=tool.summary, description=description, complete=tool.add_options)
        self.tools.add_parser(HIDDEN.name, description=f"{HIDDEN.summary}.", complete=HIDDEN.add_options)
        self.tools.add_parser("help", description="Describe the command or a tool.", complete=_add_help)

    def format_help(self) -> str:
        """Return the help text."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        listed = {action.dest: action for action in self.tools._get_subactions()}
        for group in ToolGroup:
            formatter.start_section(group.value)
            formatter.add_arguments([listed[tool.name] for tool in TOOLS if tool.group is group])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments([action for action in self._actions if action is not self.tools])
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def argument_parser() -> argparse.ArgumentParser:
    """Return the command-line parser with the options of all tools."""
    parser = _CommandParser()
    for tool in parser.tools.choices.values():
        tool.complete()
    return parser


def _add_help(parser: ToolParser) -> None:
    parser.add_argument("words", nargs="*", metavar="TOOL", help="tool, and its action if it has several")
    parser.set_defaults(run=lambda options: main([*options.words, "--help"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a tool and return its exit code.

    Args:
        arguments: command-line arguments; None for ``sys.argv[1:]``.
    """
    name = "zkconsumer"
    output.reset()
    try:
        options = _parse(arguments)
        name = " ".join(filter(None, (name, options.tool)))
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
    parser = _CommandParser()
    options: argparse.Namespace
    try:
        options, unknown = parser.parse_known_args(arguments)
        if unknown:
            wrong = parser if any(parser.unknown_options()) else options.parser
            wrong.error(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit:
        output.flush()
        raise
    return options


def _run(options: argparse.Namespace) -> int:
    """Run a tool, print its error if there is one, and return its exit code. Without a tool, print the help text."""
    run: Callable[[argparse.Namespace], int] | None = getattr(options, "run", None)
    if run is None:
        options.parser.print_help()
        return ExitCode.SUCCESS
    from zkconsumer.log import show_level

    show_level(getattr(logging, options.log_level.upper()))
    try:
        return int(run(options))
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
    from zkconsumer.tools import cluster_state

    names = {name for action in options.parser._actions for name in action.option_strings}
    if text := cluster_state.hint(names, [value for value in vars(options).values() if isinstance(value, str)]):
        output.note(f"    {text}")


if __name__ == "__main__":
    sys.exit(main())
