"""The argument parser of the tools, with hints for unknown options and help that fits the terminal."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from zkconsumer.config.name_hints import NO_COUNTERPART, Counterpart, hint, suggest
from zkconsumer.tools import output
from zkconsumer.tools.failures import USAGE_ERROR, print_error

#: Replacements for options of other tools. The first replacement that a tool supports is suggested.
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "--bootstrap-server": ("--broker-list",),
    "--bootstrap-servers": ("--bootstrap-server", "--broker-list"),
    "--broker-list": ("--bootstrap-server",),
    "--command-config": ("--consumer.config",),
    "--consumer.config": ("--command-config",),
    "--once": ("--count 1",),
    "--zkconnect": ("--zookeeper", "--zookeeper.connect"),
    "--zookeeper": ("--zkconnect", "--zookeeper.connect"),
    "--zookeeper.connect": ("--zookeeper", "--zkconnect"),
}

#: Options of Kafka's tools that have no counterpart.
_WITHOUT_COUNTERPART = ("--new-consumer",)

#: Pattern for a part of a usage text that must stay on one line: alternatives, an option with its value, or a word.
_USAGE_PART = re.compile(r"\(.*?\)|\[.*?\](?=\s)|-\S+ [A-Z]+|\S+")


class ToolHelp(argparse.HelpFormatter):
    """Wraps help texts at the terminal width. Indented lines, such as commands, are not wrapped."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for is_verbatim, block in itertools.groupby(text.splitlines(), lambda line: line[:1] in ("", " ")):
            kept = list(block)
            lines += kept if is_verbatim else textwrap.wrap(" ".join(kept), width)
        return "\n".join(indent + line for line in lines)

    def _format_usage(self, *arguments: Any) -> str:
        # argparse indents continuation lines by the command's length, which leaves too little space for alternatives.
        parts = [part.replace(" ", "\0") for part in _USAGE_PART.findall(super()._format_usage(*arguments))]
        wrapped = textwrap.wrap(
            " ".join(parts), self._width, subsequent_indent=" " * 7, break_long_words=False, break_on_hyphens=False
        )
        return "\n".join(wrapped).replace("\0", " ") + "\n\n"


class ToolParser(argparse.ArgumentParser):
    """Parses the options of one tool. Error messages suggest the options that the user probably meant."""

    _given: Sequence[str] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": ToolHelp, **kwargs})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; see ``argparse.ArgumentParser``."""
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse ignores errors of writes.
        if message and file is not None and file is sys.stdout:
            with output.writing():
                file.write(message)
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message with suggestions, and exit with code 2."""
        message += "".join(self._hints(message))
        if "--json" in self._given:
            print_error(USAGE_ERROR, message)
        super().error(message)

    def _hints(self, message: str) -> Iterable[str]:
        if chosen := re.search(r"invalid choice: '([^']*)'", message):
            choices = [str(choice) for action in self._actions for choice in action.choices or ()]
            if meant := suggest(chosen[1], choices):
                yield f"; did you mean {meant}?"
            return
        options = [name for action in self._actions for name in action.option_strings]
        counterparts = dict(_counterparts(options))
        for argument in self._given:
            name = argument.partition("=")[0]
            # argparse accepts prefixes of options.
            if name.startswith("-") and name != "--" and not any(option.startswith(name) for option in options):
                yield hint(name, options, counterparts, quote=str)


def _counterparts(options: Iterable[str]) -> Iterable[tuple[str, Counterpart]]:
    """Yield options of other tools, each with its replacement in ``options`` or ``NO_COUNTERPART``."""
    known = set(options)
    for name, others in _OTHER_NAMES.items():
        if found := [other for other in others if other.partition(" ")[0] in known]:
            yield name, Counterpart((found[0],))
    for name in _WITHOUT_COUNTERPART:
        yield name, NO_COUNTERPART
