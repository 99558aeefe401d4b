"""`sirocco connect`: moves objects into a cluster and notifications out of it."""

from __future__ import annotations

import argparse
import os
from typing import Any

from sirocco.cli.terminal.paths import path
from sirocco.cli.terminal.remote import DIRECTORY
from sirocco.cli.terminal.status import CommandError, ExitCode
from sirocco.cli.terminal.terminal import print_lines
from sirocco.model.errors import InvalidArgument


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "connect",
        description="Runs the sources and sinks of a configuration until it is stopped. Sources "
        "publish what Kafka topics hold, sinks hand a subscriber's notifications on. Several may "
        "run with the same configuration: they share the work of sources.",
    )
    parser.add_argument("config", type=path, metavar="CONFIG.yaml", help="what to connect")
    parser.add_argument(
        "--check", action="store_true", help="read the configuration alone, and report its errors"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    try:
        from sirocco.local.cluster import routers_of  # noqa: PLC0415
        from sirocco.services.connector.config import load_config  # noqa: PLC0415 - not installed
        from sirocco.services.connector.process import run  # noqa: PLC0415 - with every command
    except ModuleNotFoundError as error:
        raise CommandError(
            f"{error.name} is not installed: pip install 'sirocco[connect]'"
        ) from None
    if "SIROCCO_ROUTER" not in os.environ and (routers := routers_of(DIRECTORY)):
        # As other commands: the configuration may leave it out.
        os.environ["SIROCCO_ROUTER"] = ",".join(routers)
    if not args.check:
        return run(args.config)
    try:
        config = load_config(args.config)
    except InvalidArgument as error:
        raise CommandError(f"{args.config}: {error}") from None
    sources, sinks = ", ".join(config.sources), ", ".join(config.sinks)
    print_lines(f"sources: {sources or 'none'}; sinks: {sinks or 'none'}")
    return ExitCode.OK
