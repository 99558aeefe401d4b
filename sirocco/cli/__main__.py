"""`sirocco`: the main job on files, a demo, clusters on this machine, and calls to any cluster."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from sirocco.cli.status import ExitCode, describe

# Each command is a module with `add_parser`; the one that is run imports what it needs. A command
# is to answer `--help` at once, and the engine with its compiler takes seconds to import.
_COMMANDS = (
    *("replay", "demo", "local", "publish", "subscribe", "search", "queries", "cluster", "map"),
    "bench",
)

_DESCRIPTION = """\
Standing and one-off questions over a live stream of placed, worded, timed things.

exit status: 0 all well; 1 unexpected; 2 wrong use or wrong input; 3 some lines of a file were
bad, the rest was done; 4 the cluster cannot be reached or does not come up
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool; returns its exit status."""
    args = _parser().parse_args(arguments)
    try:
        return int(args.run(args))
    except BrokenPipeError:
        # Whoever reads has enough; nothing may be flushed at exit into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except KeyboardInterrupt:
        print("sirocco: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except Exception as error:
        message, code = describe(error)
        if code == ExitCode.UNEXPECTED and args.debug:
            traceback.print_exc()
        print(f"sirocco: {message}", file=sys.stderr)
        return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sirocco",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--debug", action="store_true", help="show where an unexpected error arose")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in _COMMANDS:
        importlib.import_module(f"sirocco.cli.{name}").add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
