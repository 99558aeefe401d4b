"""What all commands have in common that speak to a running cluster."""

from __future__ import annotations

import argparse
from pathlib import Path

from sirocco_client import Client, Tls

from sirocco.cli.status import CommandError


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say which cluster, and how to speak to it."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--router",
        required=True,
        metavar="HOST:PORT",
        help="of a router, or of several, separated by commas",
    )
    group.add_argument("--ca", type=Path, metavar="FILE", help="speak TLS, trust this authority")
    group.add_argument(
        "--server-name",
        metavar="NAME",
        help="name in the servers' certificates, where it is not the host (with --ca)",
    )
    group.add_argument("--token-file", type=Path, metavar="FILE", help="bearer token")
    group.add_argument("--timeout", type=float, default=30.0, metavar="S", help="of one call (30)")


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
    return Client(args.router, tls=tls, token=token, timeout_s=args.timeout)
