"""The tool ``completion``: prints a completion script for a shell, and the names that the script completes."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from zkconsumer.optional_packages import check_package
from zkconsumer.tools import common, group_state, output
from zkconsumer.tools.arguments import ToolParser
from zkconsumer.tools.catalogue import HIDDEN
from zkconsumer.tools.common import ToolError

_DETAILS = """\
The script completes tools, options, and the names of groups and topics. It requires the extra `cli`. Names are read
from the ZooKeeper servers that ZKCONSUMER_ZOOKEEPER names.

  eval "$(zkconsumer completion bash)"    # in ~/.bashrc
  eval "$(zkconsumer completion zsh)"     # in ~/.zshrc, after compinit
"""

#: Maximum time to wait for ZooKeeper while the user waits for a completion, in milliseconds.
_TIMEOUT_MS = 2000

#: Option destination -> names that complete its value.
_DYNAMIC = {"group": "groups", "topic": "topics"}

_FUNCTIONS = {
    "bash": '_zkconsumer_{0}() {{ compgen -W "$(zkconsumer {1} {0} 2>/dev/null)" -- "$1"; }}\n',
    "zsh": '_zkconsumer_{0}() {{ compadd -- ${{(f)"$(zkconsumer {1} {0} 2>/dev/null)"}} }}\n',
}


def add_options(parser: ToolParser) -> None:
    """Add the description, the options and the function that runs the tool."""
    parser.set_defaults(run=run)
    parser.describe(_DETAILS)
    parser.add_argument("shell", choices=("bash", "zsh"), help="shell for which the script is printed")


def add_list_names(parser: ToolParser) -> None:
    """Add the options of the hidden subcommand that the scripts call."""
    parser.set_defaults(run=run_list_names)
    parser.add_argument("kind", choices=sorted(_DYNAMIC.values()))
    common.add_zookeeper(parser)
    common.add_access(parser)


def run(options: argparse.Namespace) -> int:
    """Print the script and return the exit code."""
    try:
        check_package("cli", "shtab", "completion")
    except ModuleNotFoundError as error:
        raise ToolError(str(error)) from None
    import shtab

    from zkconsumer.tools.cli import argument_parser

    parser = argument_parser()
    _mark(parser, options.shell)
    functions = "".join(_FUNCTIONS[options.shell].format(kind, HIDDEN.name) for kind in _DYNAMIC.values())
    for line in shtab.complete(parser, shell=options.shell, preamble=functions).splitlines():
        output.echo(line.replace("\t", "    "))
    return 0


def _mark(parser: argparse.ArgumentParser, shell: str) -> None:
    """Mark the options of a parser and its subcommands whose values are completed as groups, topics or files."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _mark(inner, shell)
        elif action.dest in _DYNAMIC and action.choices is None:
            _set_completion(action, {shell: f"_zkconsumer_{_DYNAMIC[action.dest]}"})
        elif isinstance(action.metavar, str) and action.metavar.startswith("FILE"):
            import shtab

            _set_completion(action, shtab.FILE)


def _set_completion(action: Any, completion: Any) -> None:
    action.complete = completion  # read by shtab


def run_list_names(options: argparse.Namespace) -> int:
    """Print the names of all groups or topics, and return the exit code."""
    config = common.read_config(options, options.zookeeper)
    with common.access(dataclasses.replace(config, zookeeper_connection_timeout_ms=_TIMEOUT_MS)) as access:
        names = group_state.groups(access.session) if options.kind == "groups" else access.cluster.topics()
    for name in names:
        output.echo(name)
    return 0
