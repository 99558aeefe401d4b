"""`sirocco`: the main job on files, a demo, clusters on this machine, and calls to any cluster."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from sirocco import __version__
from sirocco.cli.terminal.signals import STATUS_BASE, EndedBySignal, ended_by_signals
from sirocco.cli.terminal.status import ExitCode
from sirocco.cli.terminal.terminal import drop_output, note
from sirocco.runtime.process.quick_end import leave

# Each command is a module below `sirocco.cli` with `add_parser`, imported when the command is
# called: the tool starts at once, while importing the client takes a quarter of a second and the
# engine with its compiler a whole one.
_COMMANDS = {
    "replay": ("replay.command", "run files of objects and queries through a cluster"),
    "demo": ("demo.command", "see it at work, with nothing installed beside"),
    "local": ("local.command", "run all services on this machine"),
    "publish": ("publish.command", "publish objects"),
    "subscribe": ("subscribe", "receive notifications"),
    "connect": ("connect", "move objects in and notifications out of other systems"),
    "search": ("search.command", "search what has arrived so far"),
    "queries": ("queries", "register, change, show and remove standing queries"),
    "explain": (
        "explain.command",
        "show why an object matches a query or not, and what the query costs",
    ),
    "cluster": ("cluster", "describe a running cluster"),
    "map": ("map", "show or change the partition map"),
    "balance": ("balance", "show loads, and what is decided about them"),
    "token": ("token", "make a token for clients"),
    "bench": ("bench", "measure a part alone"),
    "completion": ("completion", "have a shell complete commands and options"),
}

_DESCRIPTION = """\
Standing and one-off questions over a live stream of objects with place, text and time.

exit status: 0 all well; 1 unexpected; 2 wrong use or wrong input; 3 some lines of a file were
bad, the rest was done; 4 the cluster cannot be reached or started; 130 ^C, 143 SIGTERM
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool; returns its exit status."""
    _replace_closed_files()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with ended_by_signals():
            return _run(arguments)
    except EndedBySignal as end:
        note(f"sirocco: ended by {end.signal.name}")
        return STATUS_BASE + end.signal
    except KeyboardInterrupt:
        note("sirocco: interrupted")
        return ExitCode.INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    """Runs a command; returns its exit status."""
    args = _parser(_command_of(arguments)).parse_args(arguments)
    try:
        return int(args.run(args))
    except BrokenPipeError:
        # The reader of the output has closed it.
        drop_output()
        return ExitCode.OK
    except Exception as error:
        from sirocco.cli.terminal.errors import describe  # noqa: PLC0415 - most commands do not fail

        message, code = describe(error)
        if code == ExitCode.UNEXPECTED and args.debug:
            traceback.print_exc()
        # The end of a log in the message has separate lines.
        note(*f"sirocco: {message}".split("\n"))
        return code


def _replace_closed_files() -> None:
    """Opens files that were closed before the start: Python has none then, and others would take
    their place.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as the process


def _command_of(arguments: Sequence[str]) -> str | None:
    """Returns the requested command; None if help, nothing or an unknown word is first."""
    for argument in arguments:
        if argument in _COMMANDS:
            return argument
        if argument != "--debug":
            break
    return None


def command_module(command: str) -> Any:
    """Imports the module of a command, with its `add_parser`."""
    return importlib.import_module(f"sirocco.cli.{_COMMANDS[command][0]}")


def whole_parser() -> argparse.ArgumentParser:
    """Returns a parser with all options of all commands, which takes a while."""
    parser, commands = _frame()
    for name, (_, purpose) in _COMMANDS.items():
        command_module(name).add_parser(_WithPurpose(commands, purpose))
    return parser


class _WithPurpose:
    """Adds a command with its purpose; commands without help are not completed."""

    def __init__(self, commands: Any, purpose: str) -> None:
        self._commands = commands
        self._purpose = purpose

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser:
        found: argparse.ArgumentParser = self._commands.add_parser(
            name, **{"help": self._purpose} | options
        )
        return found


def _frame() -> tuple[argparse.ArgumentParser, argparse._SubParsersAction[argparse.ArgumentParser]]:
    """Returns a parser without commands, and the place of these."""
    parser = argparse.ArgumentParser(
        prog="sirocco",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sirocco {__version__}")
    parser.add_argument("--debug", action="store_true", help="show where an unexpected error arose")
    return parser, parser.add_subparsers(required=True, metavar="COMMAND")


def _parser(command: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options of one command, and only the names of the others."""
    parser, commands = _frame()
    if command is None:
        for name, (_, purpose) in _COMMANDS.items():
            commands.add_parser(name, help=purpose)
    else:
        command_module(command).add_parser(commands)
    return parser


if __name__ == "__main__":
    leave(main())
