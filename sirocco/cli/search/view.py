"""The table that `sirocco search` shows on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rich.table import Table
from sirocco_client import FoundObject, RangeQuery, SearchAnswer, TermsQuery

from sirocco.cli.terminal.status import counted
from sirocco.cli.terminal.terminal import console, print_lines
from sirocco.model.explanation import moment

# Rows that fit a terminal, unless another number is given.
ROWS = 20

# Longer ids are truncated; --json prints them in full.
_ID_WIDTH_MAX = 24
_TEXT_CHARACTERS_MAX = 1_000


def show(answer: SearchAnswer, limit: int | None) -> None:
    """Prints an answer as a table of at most `limit` rows, and the total number."""
    rows_max = ROWS if limit is None else limit
    is_terms = isinstance(answer.query, TermsQuery)
    table = Table(box=None, pad_edge=False, expand=not is_terms)
    if is_terms:
        table.add_column("term", overflow="fold")
        table.add_column("objects", justify="right")
        for term, objects in answer.terms[:rows_max]:
            table.add_row(term, f"{objects:,}")
    else:
        _add_objects(table, answer, rows_max)
    if table.row_count:
        console().print(table)
    one, several = ("term", "terms") if is_terms else ("object", "objects")
    found = counted(len(answer), one, several)
    print_lines(
        found if table.row_count == len(answer) else f"{table.row_count:,} of {found}: --limit N"
    )
    if answer.is_partial:
        print_lines(f"partial: slots {', '.join(map(str, answer.missing_slots))} gave no answer")


def _add_objects(table: Table, answer: SearchAnswer, rows_max: int) -> None:
    figure = "metres" if answer.distances_m else "score" if answer.scores else ""
    table.add_column("id", overflow="ellipsis", no_wrap=True, max_width=_ID_WIDTH_MAX)
    if figure:
        table.add_column(figure, justify="right", no_wrap=True)
    table.add_column("lon", justify="right", no_wrap=True)
    table.add_column("lat", justify="right", no_wrap=True)
    table.add_column("time (UTC)", no_wrap=True)
    table.add_column("text", overflow="ellipsis", no_wrap=True, ratio=1)
    # The order of a range query's ids means little to people.
    ordered = answer.newest_first if isinstance(answer.query, RangeQuery) else answer
    for found in islice(ordered, rows_max):
        table.add_row(*_cells(found))


def _cells(found: FoundObject) -> Iterator[str]:
    one = found.object
    yield str(one.id)
    if found.distance_m is not None:
        yield f"{found.distance_m:,.1f}"
    elif found.score is not None:
        yield f"{found.score:.4f}"
    yield f"{one.lon:.5f}"
    yield f"{one.lat:.5f}"
    yield _time(found.arrival_ms if one.ts_ms is None else one.ts_ms)
    # No line shows more: measuring a text of 64 KB would be slow.
    yield one.text[:_TEXT_CHARACTERS_MAX]


def _time(at_ms: int) -> str:
    return moment(at_ms // 1_000 * 1_000).removesuffix("+00:00")
