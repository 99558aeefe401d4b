"""`sirocco queries`: register, change, show and remove standing queries."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sirocco_client import (
    Client,
    RegisteredQuery,
    RegistrationResult,
    SiroccoError,
    query_from_json,
)
from sirocco_client.queries.query import Query, write_query

from sirocco.cli.terminal.bad_lines import BadLines
from sirocco.cli.terminal.paths import filled
from sirocco.cli.terminal.progress import Bar, lines_total
from sirocco.cli.terminal.remote import add_connection, connect
from sirocco.cli.terminal.status import CommandError, ExitCode, counted
from sirocco.cli.terminal.terminal import ending_with, print_done, print_json, print_lines
from sirocco.loadgen.live_lines import is_live

# Errors of a file held back until its end.
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
            "file",
            type=filled,
            nargs="?",
            default="-",
            help="lines of JSON, or an array; - is standard input",
        )
        step.add_argument(
            "--subscriber", type=filled, required=True, help="receives the notifications"
        )
        step.add_argument(
            "--past",
            type=filled,
            metavar="DURATION",
            help="also answer from what arrived in this time before, such as 2h; `all` is all that "
            "is kept",
        )
        step.add_argument("--json", action="store_true", help="print a JSON object for each query")
        add_connection(step)
        step.set_defaults(run=run)

    text = "remove queries: those of the ids, of a file, or all of a subscriber"
    for name in ("remove", "unregister"):
        removal = steps.add_parser(name, help=text, description=text)
        removal.add_argument("ids", type=filled, nargs="*", metavar="ID", help="of a query")
        removal.add_argument(
            "--file", type=filled, help="lines of ids, or of queries as JSON; - is standard input"
        )
        removal.add_argument("--subscriber", type=filled, help="whose queries, with --all")
        removal.add_argument("--all", action="store_true", help="all queries of the subscriber")
        removal.add_argument("--json", action="store_true", help="print a JSON object for each id")
        add_connection(removal)
        removal.set_defaults(run=_remove)

    get = steps.add_parser("get", help="show a query")
    get.add_argument("id", type=filled, metavar="ID", help="of the query")
    _showing(get, _get)

    listing = steps.add_parser("list", help="show all queries")
    listing.add_argument("--subscriber", type=filled, help="only this one's")
    _showing(listing, _list)


def _showing(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    add_connection(parser)
    parser.set_defaults(run=run)


class _Lines:
    """Reads the file of a command and records bad lines."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.path = _STANDARD_INPUT if args.file == "-" else Path(args.file)
        self._name: str = args.file
        self._subscriber: str = args.subscriber
        self._lines: list[int] = []
        self.bad = BadLines(args.file)
        self._warned = BadLines(args.file)
        self.good = 0
        # From a pipe that may stay open, each error is reported at once. Otherwise all are held
        # back for the order of lines, including repeats.
        self._is_live = is_live(self.path)

    def queries(self) -> Iterator[Query]:
        """Yields the valid lines."""
        # Imported here: the engine with its compiler, which not every step needs.
        from sirocco.cli.files.query_file import QueryLine, read_queries  # noqa: PLC0415

        for line in read_queries(self.path, self._name):
            if isinstance(line, QueryLine):
                self._lines.append(line.line)
                yield query_from_json(line.members, self._subscriber)
            else:
                self._refuse(line.line, line.error)

    def refused(self, row: int, error: SiroccoError) -> None:
        """Records that the cluster refused the query of a row."""
        self._refuse(self._lines[row], error)

    def done(self, row: int, result: RegistrationResult, *, as_json: bool) -> None:
        """Records that the cluster accepted the query of a row."""
        self.good += 1
        members: dict[str, Any] = {"id": result.id, "revision": result.revision}
        for each in result.warnings:
            self._warned.add(self._lines[row], f"warning: {each}")
        if result.warnings:
            members["warnings"] = list(result.warnings)
            if self._is_live or self._warned.waiting > _HELD_MAX:
                self._warned.settle()
        if as_json:
            print_done(members)

    @contextlib.contextmanager
    def account(self, what: str, *, as_json: bool) -> Iterator[None]:
        """Reports the result at the end, even after an early end."""
        with (
            _ending_with_count(lambda: self.good, what, as_json=as_json),
            _finishing(self.bad, self._warned),
        ):
            yield

    @property
    def status(self) -> int:
        """Exit status of a completed run."""
        return ExitCode.BAD_LINES if self.bad.count else ExitCode.OK

    def _refuse(self, line: int, error: object) -> None:
        self.bad.add(line, error)
        if self._is_live or self.bad.waiting > _HELD_MAX:
            self.bad.settle()


def _ending_with_count(
    count: Callable[[], int], what: str, *, as_json: bool
) -> contextlib.AbstractContextManager[None]:
    """Returns a context that ends with a line that counts queries, unless each has one of JSON."""
    if as_json:
        return contextlib.nullcontext()
    return ending_with(lambda: f"{counted(count(), 'query', 'queries')} {what}")


@contextlib.contextmanager
def _finishing(*reports: BadLines) -> Iterator[None]:
    """Reports what is left of bad lines at the end, even an early one."""
    try:
        yield
    finally:
        for each in reports:
            each.finish()


def _register(args: argparse.Namespace) -> int:
    return _change(args, "registered", "registering queries", is_update=False)


def _update(args: argparse.Namespace) -> int:
    return _change(args, "updated", "updating queries", is_update=True)


def _change(args: argparse.Namespace, done: str, doing: str, *, is_update: bool) -> int:
    """Registers or updates the queries of a file; returns the exit status."""
    lines = _Lines(args)
    with lines.account(done, as_json=args.json), Bar() as bar, connect(args) as client:
        bar.begin(doing, lines_total(lines.path, bar))
        change = client.update_many if is_update else client.register_many
        for row, result in enumerate(change(lines.queries(), past=args.past)):
            bar.advance(1)
            if result.error is not None:
                lines.refused(row, result.error)
            else:
                lines.done(row, result, as_json=args.json)
    return lines.status


def _remove(args: argparse.Namespace) -> int:
    ways = [bool(args.ids), args.file is not None, args.all]
    if sum(ways) != 1:
        raise CommandError("give ids, or --file, or --subscriber with --all", ExitCode.USAGE)
    if args.all != (args.subscriber is not None):
        raise CommandError("--subscriber and --all go together", ExitCode.USAGE)
    removed = 0
    bad = BadLines("argument" if args.file is None else args.file)
    lines: list[int] = []
    with (
        _ending_with_count(lambda: removed, "removed", as_json=args.json),
        _finishing(bad),
        Bar() as bar,
        connect(args) as client,
    ):
        for row, result in enumerate(client.unregister_many(_ids(args, client, lines, bad, bar))):
            bar.advance(1)
            if result.error is not None:
                # Without the error's field, which is the id itself.
                bad.add(lines[row], f"{result.id}: {result.error.message}")
                continue
            removed += 1
            if args.json:
                print_done({"id": result.id})
    return ExitCode.BAD_LINES if bad.count else ExitCode.OK


def _ids(
    args: argparse.Namespace, client: Client, lines: list[int], bad: BadLines, bar: Bar
) -> Iterator[str]:
    """Yields the ids to remove, and adds their line numbers to `lines`."""
    if args.file is not None:
        path = _STANDARD_INPUT if args.file == "-" else Path(args.file)
        bar.begin("removing queries", lines_total(path, bar))
        yield from _ids_of_lines(path, lines, bad)
        return
    ids: list[str] = args.ids
    if args.all:
        # All ids first: pages continue from positions that removals would move.
        bar.begin("reading the list")
        ids = [registered.query.id for registered in client.list(args.subscriber)]
    bar.begin("removing queries", len(ids))
    for number, query_id in enumerate(ids, 1):
        lines.append(number)
        yield query_id


def _ids_of_lines(path: Path, lines: list[int], bad: BadLines) -> Iterator[str]:
    """Yields the ids of a file: a line is an id, or a query's JSON."""
    from sirocco.loadgen.lines import numbered_lines  # noqa: PLC0415

    for number, line in numbered_lines(path):
        try:
            text = line.decode().strip()
            found = json.loads(text)["id"] if text.startswith("{") else text
        except (ValueError, KeyError, RecursionError) as error:
            bad.add(number, f"is no id and no query: {error}")
            continue
        lines.append(number)
        yield found


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
        print_json(whole)
        return
    start = moment(registered.start_ms)
    conditions = {k: v for k, v in members.items() if k not in ("id", "kind", "mode")}
    conditions_text = json.dumps(conditions, ensure_ascii=False)
    print_lines(f"{query.id:<24} {members['kind']:<6} {subscriber:<16} {start} {conditions_text}")
