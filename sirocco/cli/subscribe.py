"""`sirocco subscribe`: the notifications of a subscriber as they come."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from sirocco_client import Notification

from sirocco.cli.remote import add_connection, connect
from sirocco.cli.status import CommandError, ExitCode


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "subscribe",
        help="receive notifications",
        description="Prints the notifications of a subscriber, from now on unless told otherwise. "
        "Ends after --count, or when interrupted; then it tells the cursor to go on from.",
    )
    parser.add_argument("subscriber", help="whose notifications")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--cursor", help="everything behind it")
    begin.add_argument("--from-earliest", action="store_true", help="everything that is kept")
    begin.add_argument(
        "--cursor-file",
        type=Path,
        metavar="FILE",
        help="go on where this file says, and keep it up to date",
    )
    parser.add_argument("--count", type=int, metavar="N", help="end after so many")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    add_connection(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    cursor = args.cursor
    if args.cursor_file is not None and args.cursor_file.exists():
        cursor = args.cursor_file.read_text().strip() or None
    if args.count is not None and args.count < 1:
        raise CommandError("--count must be at least 1")
    left = args.count
    with connect(args) as client:
        subscription = client.subscribe(args.subscriber, cursor, from_earliest=args.from_earliest)
        try:
            with subscription:
                for notification in subscription:
                    print(_json_line(notification) if args.json else _line(notification))
                    sys.stdout.flush()
                    _keep(args.cursor_file, notification.cursor)
                    if left is not None:
                        left -= 1
                        if not left:
                            break
        finally:
            print(f"go on with --cursor {subscription.cursor}", file=sys.stderr)
    return ExitCode.OK


def _keep(path: Path | None, cursor: str) -> None:
    if path is not None:
        written = path.with_name(f"{path.name}.new")
        written.write_text(cursor)
        written.rename(path)


def _json_line(notification: Notification) -> str:
    return json.dumps(
        {
            "query": notification.query,
            "object": notification.object.members(),
            "arrival_ms": notification.arrival_ms,
            "event": list(notification.event),
            "cursor": notification.cursor,
        },
        ensure_ascii=False,
    )


def _line(notification: Notification) -> str:
    one = notification.object
    place = f"{one.lon:.5f},{one.lat:.5f}"
    return f"{notification.query:<24} {one.id!s:<20} {place:<22} {one.text}"
