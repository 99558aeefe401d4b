"""`sirocco search`: one-off searches over the objects so far."""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path
from typing import Any

from sirocco_client import (
    Client,
    InvalidArgument,
    OutOfRange,
    RangeQuery,
    SearchAnswer,
    query_from_json,
)

from sirocco.cli.terminal.bad_lines import BadLines
from sirocco.cli.terminal.numbers import epoch_ms, finite, whole
from sirocco.cli.terminal.output_formats import add_output_format
from sirocco.cli.terminal.paths import filled
from sirocco.cli.terminal.remote import add_connection, connect
from sirocco.cli.terminal.status import CommandError, ExitCode
from sirocco.cli.terminal.terminal import is_terminal, note, print_json

# Members of an answer that are as long as the answer.
_LISTS = {"objects", "distance_m", "score", "terms"}

_STANDARD_INPUT = Path("/dev/stdin")

_SIDES = ("west", "south", "east", "north")
_CIRCLE = ("lon", "lat", "radius_m")

_DESCRIPTION = """\
Answers snapshot queries from what has arrived so far: one given by options, or those of a file.
Prints a table on a terminal, elsewhere one JSON object a line. Examples:

  sirocco search range --rect -74.1 40.6 -73.7 40.9 --text 'coffee AND free' --window 1h
  sirocco search knn --point 2.35 48.85 -k 10 --text fire
  sirocco search terms --circle 2.35 48.85 5000 -k 20 --window 1h
  sirocco search ranked --point 2.35 48.85 --radius 10000 -k 10 --keyword louvre
  sirocco search --file queries.jsonl
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "search",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "kind", nargs="?", choices=("range", "knn", "terms", "ranked"), help="of the query"
    )
    parser.add_argument(
        "--file", type=filled, metavar="FILE", help="lines of JSON; - is standard input"
    )
    _add_query(parser)
    parser.add_argument(
        "--now", type=epoch_ms, metavar="MS", help="search as of this time, epoch ms"
    )
    parser.add_argument(
        "--after",
        type=filled,
        metavar="TOKEN",
        help="know all that was acknowledged up to this position token (from `publish --json`)",
    )
    parser.add_argument(
        "--allow-partial",
        action="store_true",
        help="also print answers that lack parts of the cluster; `missing_slots` names them",
    )
    parser.add_argument(
        "--objects", action="store_true", help="print whole objects instead of their ids"
    )
    parser.add_argument(
        "--limit", type=whole(0), metavar="N", help="show this many objects or terms (a table: 20)"
    )
    add_output_format(
        parser, "table (on a terminal) and geojson show the newest of a range query first"
    )
    add_connection(parser)
    parser.set_defaults(run=_run)


def _add_query(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("query")
    group.add_argument(
        "--id", type=filled, default="search", help="its name in the output (search)"
    )
    region = group.add_mutually_exclusive_group()
    sides = tuple(side.upper() for side in _SIDES)
    region.add_argument("--rect", nargs=4, type=finite, metavar=sides, help="degrees")
    circle = tuple(number.upper() for number in _CIRCLE)
    region.add_argument("--circle", nargs=3, type=finite, metavar=circle, help="degrees, metres")
    region.add_argument("--polygon", type=filled, metavar="JSON", help="rings of [lon, lat]")
    region.add_argument(
        "--region", type=filled, metavar="JSON", help='any region, such as \'{"geohash": "u09"}\''
    )
    group.add_argument("--point", nargs=2, type=finite, metavar=("LON", "LAT"), help="degrees")
    group.add_argument("--radius", type=finite, metavar="M", help="of a ranked query, metres")
    group.add_argument("-k", type=whole(), help="how many")
    group.add_argument(
        "--text", type=filled, help="boolean expression, such as '(coffee AND free) OR pizza'"
    )
    group.add_argument("--fold", action="store_true", help="accents do not matter to the text")
    group.add_argument(
        "--keyword",
        type=filled,
        action="append",
        metavar="WORD",
        help="of a ranked query; may be repeated",
    )
    weights = ("TEXT", "SPACE", "TIME")
    group.add_argument("--weights", nargs=3, type=finite, metavar=weights, help="they sum to 1")
    group.add_argument(
        "--half-life", type=filled, metavar="DURATION", help="of the part of the age (1d)"
    )
    group.add_argument("--window", type=filled, metavar="DURATION", help="greatest age, such as 1h")
    group.add_argument(
        "--where", type=filled, metavar="JSON", help='attributes, such as \'{"size": {"gte": 3}}\''
    )


def _run(args: argparse.Namespace) -> int:
    if (args.kind is None) == (args.file is None):
        raise CommandError("give either a kind of query or --file")
    with connect(args) as client:
        if args.file is not None:
            return _answer_file(args, client)
        answer = _search(args, client, _members(args))
        note(*(f"warning: {each}" for each in answer.warnings))
        _print(answer, args)
    return ExitCode.OK


def _members(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the query of the options in its public JSON form."""
    members: dict[str, Any] = {"id": args.id, "kind": args.kind, "mode": "snapshot"}
    if args.rect is not None:
        members["region"] = {"rect": dict(zip(_SIDES, args.rect, strict=True))}
    elif args.circle is not None:
        members["region"] = {"circle": dict(zip(_CIRCLE, args.circle, strict=True))}
    elif args.polygon is not None:
        members["region"] = {"polygon": _json(args.polygon, "--polygon")}
    elif args.region is not None:
        members["region"] = _json(args.region, "--region")
    if args.point is not None:
        members["point"] = dict(zip(("lon", "lat"), args.point, strict=True))
    if args.weights is not None:
        members["weights"] = dict(zip(("text", "space", "time"), args.weights, strict=True))
    if args.where is not None:
        members["where"] = _json(args.where, "--where")
    plain = {
        "k": args.k,
        "text": args.text,
        "fold": args.fold or None,
        "window": args.window,
        "radius_m": args.radius,
        "keywords": args.keyword,
        "half_life": args.half_life,
    }
    return members | {name: value for name, value in plain.items() if value is not None}


def _json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandError(f"{option}: is no JSON: {error}") from None
    except RecursionError:
        raise CommandError(f"{option}: is no JSON: nested too deeply") from None


def _answer_file(args: argparse.Namespace, client: Client) -> int:
    # Reading files imports the engine with its compiler; a search by options does not need it.
    from sirocco.cli.files.query_file import read_queries  # noqa: PLC0415
    from sirocco.loadgen.lines import BadLine  # noqa: PLC0415

    path = _STANDARD_INPUT if args.file == "-" else Path(args.file)
    bad, warned = BadLines(args.file), BadLines(args.file)
    try:
        for line in read_queries(path, args.file):
            if isinstance(line, BadLine):
                bad.add(line.line, line.error)
            else:
                try:
                    _check_mode(line.members)
                    answer = _search(args, client, line.members)
                    for each in answer.warnings:
                        warned.add(line.line, f"warning: {each}")
                    _print(answer, args)
                except (InvalidArgument, OutOfRange) as error:
                    bad.add(line.line, error)
            bad.settle()
            warned.settle()
    finally:
        bad.finish()
        warned.finish()
    return ExitCode.BAD_LINES if bad.count else ExitCode.OK


def _check_mode(members: dict[str, Any]) -> None:
    """Refuses a standing query, which the file may hold by mistake.

    Raises:
        InvalidArgument: It is one.
    """
    if members["mode"] != "snapshot":
        raise InvalidArgument(
            "is of a standing query, which `sirocco queries register` takes", field="mode"
        )


def _search(args: argparse.Namespace, client: Client, members: dict[str, Any]) -> SearchAnswer:
    return client.search(
        query_from_json(members, ""),
        now_ms=args.now,
        position_token=args.after,
        allow_partial=args.allow_partial,
    )


def _print(answer: SearchAnswer, args: argparse.Namespace) -> None:
    if args.format == "geojson":
        ordered = answer.newest_first if isinstance(answer.query, RangeQuery) else answer
        print_json(answer.to_geojson(islice(ordered, args.limit)))
        return
    if args.format == "table" or (args.format is None and is_terminal()):
        from sirocco.cli.search.view import show  # noqa: PLC0415 - for people alone

        show(answer, args.limit)
        return
    members = answer.members()
    if args.objects and "objects" in members:
        members["objects"] = [one.members() for one in answer.objects]
    if args.limit is not None:
        for name in _LISTS & members.keys():
            members[name] = members[name][: args.limit]
    print_json(members)
