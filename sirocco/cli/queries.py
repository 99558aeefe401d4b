"""`sirocco queries`: register, change, show and remove standing queries."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sirocco_client import RegisteredQuery, SiroccoError, query_from_json
from sirocco_client.queries import Query, write_query

from loadgen.live_lines import is_live
from sirocco.cli.bad_lines import BadLines
from sirocco.cli.progress import Bar, lines_total
from sirocco.cli.remote import add_connection, connect
from sirocco.cli.status import ExitCode, counted
from sirocco.cli.terminal import say, say_json

# Errors of a file that are held back until its end.
_HELD_MAX = 10_000

_STANDARD_INPUT = Path("/dev/stdin")


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "queries",
        description="Standing queries of a running cluster. A change is acknowledged when every "
        "slot that it concerns has it: objects published later meet the new state.",
    )
    steps = parser.add_subparsers(required=True, metavar="STEP")
    for name, run, text in (
        ("register", _register, "register queries; an equal query under its id is no error"),
        ("update", _update, "replace queries, each in one step"),
    ):
        step = steps.add_parser(name, help=text, description=text)
        step.add_argument(
            "file", nargs="?", default="-", help="lines of JSON, or an array; - is standard input"
        )
        step.add_argument("--subscriber", required=True, help="who is told")
        step.add_argument(
            "--past",
            metavar="DURATION",
            help="also answer from what arrived in so long before, such as 2h; `all` is all that "
            "is kept",
        )
        step.add_argument("--json", action="store_true", help="print a JSON object for each query")
        add_connection(step)
        step.set_defaults(run=run)

    unregister = steps.add_parser("unregister", help="remove queries")
    unregister.add_argument("ids", nargs="+", metavar="ID", help="of a query")
    add_connection(unregister)
    unregister.set_defaults(run=_unregister)

    get = steps.add_parser("get", help="show a query")
    get.add_argument("id", metavar="ID", help="of the query")
    _showing(get, _get)

    listing = steps.add_parser("list", help="show all queries")
    listing.add_argument("--subscriber", help="only this one's")
    _showing(listing, _list)


def _showing(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    add_connection(parser)
    parser.set_defaults(run=run)


class _Lines:
    """Reads the file of a command and keeps account of what was bad."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.path = _STANDARD_INPUT if args.file == "-" else Path(args.file)
        self._name: str = args.file
        self._subscriber: str = args.subscriber
        self._lines: list[int] = []
        self.bad = BadLines(args.file)
        self.good = 0
        # Where somebody waits at the other end of a pipe, each error is told at once; else all are
        # held back so that they stand in the order of lines, a repeat among the others.
        self._is_live = is_live(self.path)

    def queries(self) -> Iterator[Query]:
        """Yields the good lines."""
        # Here: the engine with its compiler, which not every step needs.
        from sirocco.cli.query_file import QueryLine, read_queries  # noqa: PLC0415

        for line in read_queries(self.path, self._name):
            if isinstance(line, QueryLine):
                self._lines.append(line.line)
                yield query_from_json(line.members, self._subscriber)
            else:
                self._refuse(line.line, line.error)

    def refused(self, row: int, error: SiroccoError) -> None:
        """The cluster refused the query of a row."""
        self._refuse(self._lines[row], error)

    def done(self, query_id: str, revision: int, *, as_json: bool) -> None:
        """The cluster has a query."""
        self.good += 1
        if as_json:
            say_json({"id": query_id, "revision": revision})

    @contextlib.contextmanager
    def account(self, what: str, *, as_json: bool) -> Iterator[None]:
        """Says at the end how it went, also where it ends early."""
        try:
            yield
        finally:
            self.bad.finish()
            if not as_json:
                say(f"{counted(self.good, 'query', 'queries')} {what}")

    @property
    def status(self) -> int:
        """The exit status of a run that came to its end."""
        return ExitCode.BAD_LINES if self.bad.count else ExitCode.OK

    def _refuse(self, line: int, error: object) -> None:
        self.bad.add(line, error)
        if self._is_live or self.bad.waiting > _HELD_MAX:
            self.bad.settle()


def _register(args: argparse.Namespace) -> int:
    lines = _Lines(args)
    with lines.account("registered", as_json=args.json), Bar() as bar, connect(args) as client:
        bar.begin("registering queries", lines_total(lines.path, bar))
        results = client.register_many(lines.queries(), past=args.past)
        for row, result in enumerate(results):
            bar.advance(1)
            if result.error is not None:
                lines.refused(row, result.error)
            else:
                lines.done(result.id, result.revision, as_json=args.json)
    return lines.status


def _update(args: argparse.Namespace) -> int:
    lines = _Lines(args)
    with lines.account("updated", as_json=args.json), Bar() as bar, connect(args) as client:
        bar.begin("updating queries", lines_total(lines.path, bar))
        for row, query in enumerate(lines.queries()):
            bar.advance(1)
            try:
                revision = client.update(query, past=args.past)
            except SiroccoError as error:
                if error.retryable:
                    raise
                lines.refused(row, error)
            else:
                lines.done(query.id, revision, as_json=args.json)
    return lines.status


def _unregister(args: argparse.Namespace) -> int:
    with connect(args) as client:
        for query_id in args.ids:
            client.unregister(query_id)
    return ExitCode.OK


def _get(args: argparse.Namespace) -> int:
    with connect(args) as client:
        _show(client.get(args.id), as_json=args.json)
    return ExitCode.OK


def _list(args: argparse.Namespace) -> int:
    with connect(args) as client:
        for registered in client.list(args.subscriber):
            _show(registered, as_json=args.json)
    return ExitCode.OK


def _show(registered: RegisteredQuery, *, as_json: bool) -> None:
    from sirocco.codec.queries import read_query  # noqa: PLC0415
    from sirocco.model.explanation import moment  # noqa: PLC0415
    from sirocco.model.query import canonical  # noqa: PLC0415

    query, subscriber = read_query(write_query(registered.query))
    members = canonical(query)
    if as_json:
        whole = {
            "query": members,
            "subscriber": subscriber,
            "revision": registered.revision,
            "start_ms": registered.start_ms,
        }
        say_json(whole)
        return
    start = moment(registered.start_ms)
    conditions = {k: v for k, v in members.items() if k not in ("id", "kind", "mode")}
    conditions_text = json.dumps(conditions, ensure_ascii=False)
    say(f"{query.id:<24} {members['kind']:<6} {subscriber:<16} {start} {conditions_text}")
