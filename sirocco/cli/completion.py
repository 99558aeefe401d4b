"""`sirocco completion`: a script for shells that completes commands and options."""

from __future__ import annotations

import argparse
from typing import Any

from sirocco.cli.terminal.status import ExitCode
from sirocco.cli.terminal.terminal import print_lines

SHELLS = ("bash", "zsh", "tcsh")

_DESCRIPTION = """\
Prints a script by which a shell completes commands and options. For good, in bash or zsh:

  sirocco completion bash > ~/.local/share/bash-completion/completions/sirocco
  sirocco completion zsh > "${fpath[1]}/_sirocco"
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "completion", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shell", choices=SHELLS, help="whose script")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    import shtab  # noqa: PLC0415 - for this command alone

    from sirocco.cli.__main__ import whole_parser  # noqa: PLC0415

    script = shtab.complete(whole_parser(), shell=args.shell)
    print_lines(*script.replace("\t", "    ").split("\n"))
    return ExitCode.OK
