"""What all commands have in common that speak to a running cluster."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from sirocco_client import Client, Tls

from sirocco.cli.numbers import seconds
from sirocco.cli.status import CommandError

DIRECTORY = Path(".run")
"""Where a local cluster has its files unless told otherwise."""


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say which cluster, and how to speak to it."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--router",
        metavar="HOST:PORT",
        help="of a router, or of several, separated by commas (SIROCCO_ROUTER, or that of the "
        "cluster that `sirocco local` runs here)",
    )
    group.add_argument("--ca", type=Path, metavar="FILE", help="speak TLS, trust this authority")
    group.add_argument(
        "--server-name",
        metavar="NAME",
        help="name in the servers' certificates, where it is not the host (with --ca)",
    )
    group.add_argument("--token-file", type=Path, metavar="FILE", help="bearer token")
    group.add_argument(
        "--timeout", type=seconds, default=30.0, metavar="S", help="of one call (30)"
    )


def connect(args: argparse.Namespace) -> Client:
    """Returns a client of the cluster that the options name.

    Raises:
        CommandError: A file that an option names cannot be read.
    """
    try:
        if args.server_name is not None and args.ca is None:
            raise CommandError("--server-name goes with --ca")
        tls = (
            None
            if args.ca is None
            else Tls(root_certificates=args.ca.read_bytes(), server_name=args.server_name)
        )
        token = None if args.token_file is None else args.token_file.read_text().strip()
    except OSError as error:
        raise CommandError(str(error)) from None
    return Client(_router(args), tls=tls, token=token, timeout_s=args.timeout)


def _router(args: argparse.Namespace) -> str:
    """The router that is named, by the option, by the environment, or by a cluster beside.

    Raises:
        CommandError: There is none of them.
    """
    if args.router is not None:
        return str(args.router)
    if found := os.environ.get("SIROCCO_ROUTER"):
        return found
    from sirocco.local.cluster import routers_of  # noqa: PLC0415 - where none is named
    from sirocco.local.invocation import program  # noqa: PLC0415

    if found := ",".join(routers_of(DIRECTORY)):
        return found
    raise CommandError(
        "which cluster? Say --router HOST:PORT, set SIROCCO_ROUTER, or start one here: "
        f"{program()} local up"
    )
