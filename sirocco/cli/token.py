"""`sirocco token`: writes a new token for clients to a file; the servers get its digest."""

from __future__ import annotations

import argparse
import os
import secrets

from sirocco.cli.terminal.paths import filled, path
from sirocco.cli.terminal.status import CommandError, ExitCode
from sirocco.cli.terminal.terminal import print_lines
from sirocco.model.access import SCOPES, Grant, digest_of, read_tenant, read_time_ms, write_grant
from sirocco.model.errors import InvalidArgument

# Too many to guess.
_SECRET_BYTES = 32


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "token",
        help="make a token for clients",
        description="Writes a new token to a file of yours, and prints the line that the servers' "
        "file of tokens (SIROCCO_TOKENS) needs. The line holds a digest: it is no secret.",
    )
    parser.add_argument("secret", type=path, metavar="FILE", help="new file for the token itself")
    parser.add_argument(
        "--tenant", type=filled, help="its tenant (without: the operator's, who sees all tenants)"
    )
    parser.add_argument(
        "--scope",
        type=filled,
        action="append",
        required=True,
        choices=SCOPES,
        help="what it allows; may be repeated",
    )
    parser.add_argument(
        "--expires", type=filled, metavar="TIME", help="such as 2027-01-01T00:00:00Z"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    try:
        tenant = "" if args.tenant is None else read_tenant(args.tenant)
        expires_ms = None if args.expires is None else read_time_ms(args.expires)
    except InvalidArgument as error:
        raise CommandError(str(error)) from None
    if tenant and "admin" in args.scope:
        raise CommandError(
            "admin is only for tokens without a tenant: it changes the whole cluster"
        )
    token = f"sirocco_{secrets.token_urlsafe(_SECRET_BYTES)}"
    try:
        # No other user may read it, not even briefly; an existing file is not replaced.
        with os.fdopen(os.open(args.secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
            f.write(token + "\n")
    except OSError as error:
        raise CommandError(f"{args.secret}: {error.strerror}") from None
    grant = Grant(secrets.token_hex(4), tenant, frozenset(args.scope), expires_ms)
    print_lines(write_grant(digest_of(token), grant, args.expires))
    return ExitCode.OK
