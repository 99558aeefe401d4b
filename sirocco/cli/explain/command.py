"""`sirocco explain`: the meaning of a query, its places, and why an object matches or not."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sirocco_client import (
    Client,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    OutOfRange,
    PartialResult,
    PermissionDenied,
    Unavailable,
    query_from_json,
)
from sirocco_client.queries import write_query
from sirocco_client.region_json import with_plain_region

from sirocco.cli.files.whole_file import read_whole
from sirocco.cli.terminal.numbers import epoch_ms
from sirocco.cli.terminal.paths import filled
from sirocco.cli.terminal.remote import add_connection, connect
from sirocco.cli.terminal.status import CommandError, ExitCode
from sirocco.cli.terminal.terminal import print_json, print_lines

if TYPE_CHECKING:
    from sirocco.cli.explain.report import Cluster, ExplainedQuery, RecentMatches
    from sirocco.model.objects import ObjectRow

# Objects that are counted; for more, the exact number does not matter.
COUNTED_MAX = 100_000

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
        explained = _registered(client, args.id) if args.file is None else _read_query(args.file)
        # Imported here, and below: the engine with its compiler, which takes a while.
        from sirocco.cli.explain.report import report, window_of  # noqa: PLC0415

        checked = _read_object(args)
        window_ms = window_of(explained.query, _window_ms(args.window))
        members = report(
            explained,
            _read_cluster(client),
            _recent_matches(client, explained, window_ms, is_enabled=not args.no_search),
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


def _registered(client: Client, query_id: str) -> ExplainedQuery:
    found = client.get(query_id)
    from sirocco.cli.explain.report import ExplainedQuery  # noqa: PLC0415
    from sirocco.codec.queries import read_query  # noqa: PLC0415

    query, subscriber = read_query(write_query(found.query))
    return ExplainedQuery(query, subscriber, found.revision, found.start_ms, found.start_given)


def _read_query(file: str) -> ExplainedQuery:
    from sirocco.cli.explain.report import ExplainedQuery  # noqa: PLC0415
    from sirocco.model.query import parse_query  # noqa: PLC0415

    text = read_whole(file, FILE_BYTES_MAX)
    try:
        members = with_plain_region(_parsed(file, lambda: _loaded(text, "query")))
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


# --- the state of the cluster


def _read_cluster(client: Client) -> Cluster:
    """Returns the known state of the cluster; a client with fewer rights gets less."""
    from sirocco.cli.explain.report import Cluster  # noqa: PLC0415
    from sirocco.schemes.map.map_bytes import from_bytes  # noqa: PLC0415

    described = client.describe(leaves=True)
    try:
        change = client.map_change(with_map=True)
        balance = client.balance()
    except PermissionDenied as error:
        return Cluster(described, None, "", None, str(error))
    if not change.map_version:
        return Cluster(described, None, "", balance, "the cluster has no map yet")
    return Cluster(described, from_bytes(change.partition_map), change.phase, balance)


def _recent_matches(
    client: Client, explained: ExplainedQuery, window_ms: int, *, is_enabled: bool
) -> RecentMatches:
    """Counts the query's objects within the window, by a search for the same conditions."""
    from sirocco.cli.explain.report import RecentMatches, count_search  # noqa: PLC0415

    if not is_enabled:
        return RecentMatches(window_ms, why="--no-search is given")
    count = 0
    try:
        search = query_from_json(count_search(explained.query, window_ms), "")
        for part in client.search_parts(search):
            count += len(part)
            if count >= COUNTED_MAX:
                break
    except FailedPrecondition as error:
        return RecentMatches(window_ms, why=str(error), has_store=False)
    except (
        DeadlineExceeded,
        InvalidArgument,
        OutOfRange,
        PartialResult,
        PermissionDenied,
        Unavailable,
    ) as error:
        return RecentMatches(window_ms, why=str(error))
    return RecentMatches(window_ms, min(count, COUNTED_MAX), count >= COUNTED_MAX, has_store=True)
