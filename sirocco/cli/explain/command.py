"""`sirocco explain`: the meaning of a query, its places, and why an object matches or not."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sirocco_client import InvalidArgument
from sirocco_client.queries.region_json import with_plain_region

from sirocco.cli.files.whole_file import read_whole
from sirocco.cli.terminal.numbers import epoch_ms
from sirocco.cli.terminal.paths import filled
from sirocco.cli.terminal.remote import add_connection, connect
from sirocco.cli.terminal.status import CommandError, ExitCode
from sirocco.cli.terminal.terminal import print_json, print_lines

if TYPE_CHECKING:
    from sirocco.explain.report import ExplainedQuery
    from sirocco.model.objects import ObjectRow

# A query at all limits, or an object, takes a few megabytes however it is indented. JSON of small
# arrays takes thirty times its length once it is read.
FILE_BYTES_MAX = 16 << 20

_DESCRIPTION = """\
Shows how the cluster understands a query, which leaves and slots hold it, what load arrives there,
and what it matched recently; with an object also whether it matches, condition by condition.
Nothing is registered and nothing published. Examples:

  sirocco explain coffee
  sirocco explain coffee --object '{"id": 1, "lon": 2.3, "lat": 48.8, "text": "tea"}'
  sirocco explain --file query.json --object-file object.json --json
"""

_Found = TypeVar("_Found")


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "explain", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "id", type=filled, nargs="?", metavar="QUERY_ID", help="id of a registered query"
    )
    parser.add_argument(
        "--file",
        type=filled,
        metavar="FILE",
        help="a query as JSON, not registered; - is standard input",
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--object", type=filled, metavar="JSON", help="an object: does it match, and why"
    )
    choice.add_argument(
        "--object-file", type=filled, metavar="FILE", help="the same; - is standard input"
    )
    parser.add_argument(
        "--arrival", type=epoch_ms, metavar="MS", help="when the object arrives, epoch ms (now)"
    )
    parser.add_argument(
        "--window",
        type=filled,
        metavar="DURATION",
        help="count the matches of this duration (its own window, or 1h)",
    )
    parser.add_argument("--no-search", action="store_true", help="count nothing")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    add_connection(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    _check(args)
    with connect(args) as client:
        # A wrong address or id fails before the engine is imported.
        found = None if args.id is None else client.get(args.id)
        # Imported here, and below: the engine with its compiler, which takes a while.
        from sirocco.explain.cluster_state import (  # noqa: PLC0415
            count_recent,
            explained_of,
            read_cluster,
        )
        from sirocco.explain.report import RecentMatches, report, window_of  # noqa: PLC0415

        explained = read_query(args.file) if found is None else explained_of(found)
        checked = _read_object(args)
        window_ms = window_of(explained.query, _window_ms(args.window))
        members = report(
            explained,
            read_cluster(client),
            RecentMatches(window_ms, why="--no-search is given")
            if args.no_search
            else count_recent(client, explained, window_ms),
            checked,
            now_ms=time.time_ns() // 1_000_000,
            arrival_ms=args.arrival,
        )
    if args.json:
        print_json(members)
    else:
        from sirocco.cli.explain.view import lines_of  # noqa: PLC0415

        print_lines(*lines_of(members))
    return ExitCode.OK


def _check(args: argparse.Namespace) -> None:
    if (args.id is None) == (args.file is None):
        raise CommandError("give either the id of a query or --file")
    if args.file == "-" and args.object_file == "-":
        raise CommandError("query and object cannot both come from standard input")
    if args.arrival is not None and args.object is None and args.object_file is None:
        raise CommandError("--arrival needs an object")


# --- the query and the object


def read_query(file: str) -> ExplainedQuery:
    """Reads a query that is not registered; `id` and `mode` may be missing, as over HTTP.

    Raises:
        CommandError: It is no query; the message names the file and the member.
    """
    from sirocco.explain.report import ExplainedQuery  # noqa: PLC0415
    from sirocco.model.query import parse_query  # noqa: PLC0415

    text = read_whole(file, FILE_BYTES_MAX)
    loaded = _parsed(file, lambda: _loaded(text, "query"))
    if isinstance(loaded, dict):
        loaded = {"id": "query", "mode": "continuous"} | loaded
    try:
        members = with_plain_region(loaded)
    except InvalidArgument as error:
        raise CommandError(f"{file}: {error}") from None
    return _parsed(file, lambda: ExplainedQuery(parse_query(members)))


def _read_object(args: argparse.Namespace) -> ObjectRow | None:
    from sirocco.model.objects import parse_object  # noqa: PLC0415

    if args.object is not None:
        return _parsed("--object", lambda: parse_object(_loaded(args.object, "object")))
    if args.object_file is None:
        return None
    text = read_whole(args.object_file, FILE_BYTES_MAX)
    return _parsed(args.object_file, lambda: parse_object(_loaded(text, "object")))


def _window_ms(window: str | None) -> int | None:
    from sirocco.model.durations import parse_duration_ms  # noqa: PLC0415

    if window is None:
        return None
    return _parsed("--window", lambda: parse_duration_ms(window, "window"))


def _loaded(text: bytes | str, field: str) -> Any:
    from sirocco.model.json_text import load_json  # noqa: PLC0415

    return load_json(text, field)


def _parsed(source: str, parse: Callable[[], _Found]) -> _Found:
    from sirocco.model.errors import InvalidArgument as BadMember  # noqa: PLC0415

    try:
        return parse()
    except BadMember as error:
        raise CommandError(f"{source}: {error}") from None
