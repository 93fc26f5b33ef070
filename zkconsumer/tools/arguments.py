"""The argument parser of the tools, with hints for unknown options and help that fits the terminal."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from zkconsumer.tools import output
from zkconsumer.tools.failures import USAGE_ERROR, print_error
from zkconsumer.version import __version__

if TYPE_CHECKING:
    from zkconsumer.config.name_hints import Counterpart

#: Replacements for options of other tools. The first replacement that a tool supports is suggested.
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "--bootstrap-server": ("--broker-list",),
    "--bootstrap-servers": ("--bootstrap-server", "--broker-list"),
    "--broker-list": ("--bootstrap-server",),
    "--command-config": ("--consumer.config",),
    "--consumer.config": ("--command-config",),
    "--once": ("--count 1",),
    "--zkconnect": ("--zookeeper",),
    "--zookeeper.connect": ("--zookeeper",),
}

#: Valid values of ``--log-level``.
LOG_LEVELS = ("debug", "info", "warning", "error")

#: Options of Kafka's tools that have no counterpart.
_WITHOUT_COUNTERPART = ("--new-consumer",)

#: Pattern for a part of a usage text that must stay on one line: alternatives, an option with its value, or a word.
_USAGE_PART = re.compile(r"\(.*?\)|\[.*?\](?=\s)|-\S+ [A-Z]+|\S+")


#: Pattern of messages that can be caused by an unknown option: argparse takes its value for a tool, or misses a
#: required option.
_CONSEQUENCE = re.compile(r"required|unrecognized arguments|argument (TOOL|ACTION)")

#: Start of argparse's message.
_UNRECOGNIZED = "unrecognized arguments: "


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
    """Parses the options of one tool or action.

    A tool adds its options when its parser is first used, so that other tools are not imported. Error messages suggest
    the options that the user probably meant.
    """

    _given: Sequence[str] = ()

    def __init__(
        self, *args: Any, complete: Callable[[ToolParser], None] | None = None, is_main: bool = False, **kwargs: Any
    ) -> None:
        """Create a parser.

        Args:
            args: arguments of ``argparse.ArgumentParser``.
            complete: function that adds the options when the parser is first used.
            is_main: whether this is the parser of the command; the other parsers override its options if given.
            kwargs: keyword arguments of ``argparse.ArgumentParser``.
        """
        super().__init__(*args, **{"formatter_class": ToolHelp, **kwargs})
        self._complete_with = complete
        self.set_defaults(parser=self)
        _add_global_options(self, is_main)

    def complete(self) -> None:
        """Add the options of the tool, unless they have already been added."""
        function, self._complete_with = self._complete_with, None
        if function is not None:
            function(self)

    def describe(self, details: str) -> None:
        """Append paragraphs to the description, which ``--help`` shows."""
        self.description = f"{self.description}\n\n{details}"

    def show_examples(self, *commands: str) -> None:
        """Append commands to the help text; each is an example of a complete command line."""
        lines = [f"  {line}" for command in commands for line in command.split("\n")]
        self.epilog = "\n".join(["examples:", *lines])

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; see ``argparse.ArgumentParser``."""
        self.complete()
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def format_help(self) -> str:
        """Return the help text."""
        self.complete()
        return super().format_help()

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse ignores errors of writes.
        if message and file is not None and file is sys.stdout:
            with output.writing():
                file.write(message)
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message with suggestions, and exit with code 2.

        Unknown options are reported first: if an option is misspelled, a required option is missing as well.
        """
        if unknown := list(self.unknown_options()):
            first = message if _UNRECOGNIZED in message else f"{_UNRECOGNIZED}{' '.join(unknown)}"
            rest = [] if _CONSEQUENCE.search(message) else [message]
            text = "\n".join([first + "".join(map(self._hint, unknown)), *rest])
        else:
            text = self._with_hint(message)
        if "--json" in self._given:
            print_error(USAGE_ERROR, text)
        super().error(text)

    def unknown_options(self) -> Iterator[str]:
        """Yield the given options that this parser does not have. Options after a subcommand belong to its parser."""
        options = {name: action for action in self._actions for name in action.option_strings}
        arguments = iter(self._given)
        for argument in arguments:
            name, equals, _ = argument.partition("=")
            if name == "--":
                return
            if not name.startswith("-") or name == "-" or re.match(r"-\d", name):
                if self._subparsers is not None:
                    return
                continue
            # argparse accepts prefixes of long options, and combined short options.
            known = [one for one in options if one.startswith(name)] or [one for one in options if one == name[:2]]
            if not known:
                yield name
            elif not equals and options[known[0]].nargs is None:
                next(arguments, None)  # the value of the option

    def _hint(self, name: str) -> str:
        """Return the hint for an unknown option."""
        from zkconsumer.config.name_hints import hint

        options = [option for action in self._actions for option in action.option_strings]
        found = hint(name, options, dict(_counterparts(options)), quote=str)
        return found or ("; options of a tool or action follow its name" if self._subparsers is not None else "")

    def _with_hint(self, message: str) -> str:
        from zkconsumer.config.name_hints import suggest

        if chosen := re.search(r"invalid choice: '([^']*)'", message):
            choices = [str(choice) for action in self._actions for choice in action.choices or ()]
            if meant := suggest(chosen[1], choices):
                return f"{message}; did you mean {meant}?"
        return message


class _ChangeLevel(argparse.Action):
    """Sets the log level: ``-v`` info, ``-vv`` debug, ``-q`` error."""

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, _values: object, option: str | None = None
    ) -> None:
        """Handle one ``-v`` or ``-q``."""
        if option in ("-q", "--quiet"):
            level = "error"
        else:
            level = "debug" if getattr(namespace, "is_verbose", False) else "info"
            namespace.is_verbose = True
        namespace.log_level = level


def _add_global_options(parser: argparse.ArgumentParser, is_main: bool) -> None:
    """Add the options that can be given before and after the tool. Only the main parser has a default log level."""
    parser.add_argument(
        "--log-level",
        type=str.lower,
        choices=LOG_LEVELS,
        default="warning" if is_main else argparse.SUPPRESS,
        help="show log events of this level and above on standard error (default: warning)",
    )
    for names, text in (
        (("-v", "--verbose"), "same as --log-level info; twice: --log-level debug"),
        (("-q", "--quiet"), "same as --log-level error"),
    ):
        parser.add_argument(*names, action=_ChangeLevel, nargs=0, default=argparse.SUPPRESS, help=text)
    parser.add_argument(
        "--version",
        action="version",
        version=f"zkconsumer {__version__}",
        help="print the version and exit" if is_main else argparse.SUPPRESS,
    )


def _counterparts(options: Iterable[str]) -> Iterable[tuple[str, Counterpart]]:
    """Yield options of other tools, each with its replacement in ``options`` or ``NO_COUNTERPART``."""
    from zkconsumer.config.name_hints import NO_COUNTERPART, Counterpart

    known = set(options)
    for name, others in _OTHER_NAMES.items():
        if found := [other for other in others if other.partition(" ")[0] in known]:
            yield name, Counterpart((found[0],))
    for name in _WITHOUT_COUNTERPART:
        yield name, NO_COUNTERPART
