"""`sirocco subscribe`: prints the notifications of a subscriber as they arrive."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from typing import Any

from sirocco_client import (
    Client,
    Delivery,
    Ended,
    Highlight,
    KnnChange,
    Notification,
    Object,
    RankedChange,
    Retry,
    SiroccoError,
    TermsStep,
)

from sirocco.cli.terminal.numbers import at_least_one
from sirocco.cli.terminal.output_formats import add_output_format
from sirocco.cli.terminal.paths import filled, naming, path
from sirocco.cli.terminal.remote import add_connection, connect, text_of
from sirocco.cli.terminal.status import ExitCode, counted
from sirocco.cli.terminal.terminal import note, print_json, print_lines

# Queries that are counted before the subscription; for more, the exact number does not matter.
_COUNTED_MAX = 1_000

# A subscriber survives any restart of the cluster: it continues afterwards.
_RETRY = Retry(attempts=1 << 30)


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "subscribe",
        description="Prints the notifications of a subscriber, from now on by default. "
        "Ends after --count, or when interrupted; then it prints the cursor to continue from.",
    )
    parser.add_argument("subscriber", type=filled, help="whose notifications to print")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--cursor", type=filled, help="everything after this cursor")
    begin.add_argument("--from-earliest", action="store_true", help="everything that is kept")
    begin.add_argument(
        "--cursor-file",
        type=path,
        metavar="FILE",
        help="continue where this file says, and keep it up to date",
    )
    parser.add_argument(
        "--count",
        "--limit",
        type=at_least_one,
        metavar="N",
        help="end after this many notifications",
    )
    add_output_format(parser, "geojson: a Feature a line for each match (table)", "table")
    add_connection(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    cursor = args.cursor
    if args.cursor_file is not None and args.cursor_file.exists():
        cursor = text_of(args.cursor_file).strip() or None
    left = args.count
    with connect(args, retry=_RETRY) as client:
        subscription = client.subscribe(args.subscriber, cursor, from_earliest=args.from_earliest)
        # A subscription refused here, or without a server, has no cursor to continue from.
        subscription.open(args.timeout)
        note(f"listening as {args.subscriber}{_queries_of(client, args.subscriber)}")
        printed = ""
        try:
            with subscription:
                for delivery in subscription:
                    _print(delivery, args.format)
                    printed = delivery.cursor
                    _keep(args.cursor_file, delivery.cursor)
                    if left is not None:
                        left -= 1
                        if not left:
                            break
        finally:
            # The subscription's own cursor stays before a batch until the next one is requested.
            note(f"go on with --cursor {printed or subscription.cursor}")
    return ExitCode.OK


def _print(delivery: Delivery, form: str) -> None:
    if form == "ndjson":
        print_json(_json_members(delivery))
    elif form == "table":
        print_lines(_line(delivery))
    elif isinstance(delivery, Notification):
        found = {"query": delivery.query, "arrival_ms": delivery.arrival_ms}
        if delivery.change != "match":
            found |= {"event": delivery.change, "track": delivery.track}
        print_json(delivery.object.to_geojson(**found, cursor=delivery.cursor))


def _queries_of(client: Client, subscriber: str) -> str:
    """Describes the subscriber's queries in words; empty if the token does not allow it."""
    try:
        found = sum(1 for _ in islice(client.list(subscriber), _COUNTED_MAX + 1))
    except SiroccoError:
        return ""
    if not found:
        return ": no query of this subscriber"
    if found > _COUNTED_MAX:
        return f", more than {_COUNTED_MAX:,} queries"
    return f", {counted(found, 'query', 'queries')}"


def _keep(path: Path | None, cursor: str) -> None:
    if path is not None:
        written = path.with_name(f"{path.name}.new")
        with naming(written):
            written.write_text(cursor)
        written.rename(path)


def _json_members(delivery: Delivery) -> dict[str, Any]:
    return _members(delivery) | {"cursor": delivery.cursor}


def _members(delivery: Delivery) -> dict[str, Any]:
    """Returns the line of OUT, with the whole object for a match and its other data."""
    members: dict[str, Any] = {"query": delivery.query}
    if isinstance(delivery, Notification):
        members["object"] = delivery.object.members()
        if delivery.change != "match":
            members |= {"event": delivery.change, "track": delivery.track}
        if delivery.highlights:
            members["highlights"] = [_place(one) for one in delivery.highlights]
        return members | {"arrival_ms": delivery.arrival_ms, "publication": list(delivery.event)}
    if isinstance(delivery, Ended):
        return members | {"event": "ended", "reason": delivery.reason}
    if not isinstance(delivery, KnnChange) and delivery.is_partial:
        members["partial"] = True
    if isinstance(delivery, TermsStep):
        return members | {"terms": delivery.terms, "at": delivery.at_ms}
    objects = [one for one, _ in delivery.entries]
    figures = [figure for _, figure in delivery.entries]
    if isinstance(delivery, KnnChange):
        members |= {"added": [one.id for one in delivery.added], "removed": delivery.removed}
        members |= {"objects": objects, "distance_m": figures}
        return members | _places(delivery, delivery.added)
    members |= {"objects": objects, "score": figures, "at": delivery.at_ms}
    return members | _places(delivery, delivery.new)


def _places(delivery: KnnChange | RankedChange, new: tuple[Object, ...]) -> dict[str, Any]:
    """Returns the places of words in the objects that are new in a list."""
    pairs = zip(new, delivery.highlights, strict=False)
    found = [{"object": one.id} | _place(each) for one, shown in pairs for each in shown]
    return {"highlights": found} if found else {}


def _place(one: Highlight) -> dict[str, Any]:
    return {"term": one.term, "start": one.start, "end": one.end}


def _line(delivery: Delivery) -> str:
    head = f"{delivery.query:<24}"
    if isinstance(delivery, Notification):
        one = delivery.object
        place = f"{one.lon:.5f},{one.lat:.5f}"
        change = "" if delivery.change == "match" else f"{delivery.change} {delivery.track}  "
        return f"{head} {one.id!s:<20} {place:<22} {change}{one.text}"
    if isinstance(delivery, Ended):
        return f"{head} ended ({delivery.reason})"
    if isinstance(delivery, TermsStep):
        return f"{head} " + "  ".join(f"{term} {count}" for term, count in delivery.terms)
    unit = " m" if isinstance(delivery, KnnChange) else ""
    return f"{head} " + "  ".join(f"{one} {figure:g}{unit}" for one, figure in delivery.entries)
