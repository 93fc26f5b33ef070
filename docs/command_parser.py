"""The argument parser of the tools, with examples that Sphinx shows as in a terminal."""

from __future__ import annotations

import argparse

from zkconsumer.tools import cli


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of ``zkconsumer`` for ``sphinxarg``, which reads the texts as reStructuredText."""
    parser = cli.argument_parser()
    _mark_examples(parser)
    return parser


def _mark_examples(parser: argparse.ArgumentParser) -> None:
    if parser.epilog is not None:
        parser.epilog = parser.epilog.replace("examples:\n", "Examples::\n\n", 1)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in dict.fromkeys(action.choices.values()):
                _mark_examples(command)
