"""Reads files of queries of all kinds, with bad lines and repeats reported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from sirocco_client import InvalidArgument as InvalidRegion
from sirocco_client.queries.region_json import with_plain_region

from sirocco.cli.files.query_documents import LOOKS_MAX, query_documents
from sirocco.loadgen.damage import DamagedFileError
from sirocco.loadgen.lines import BadLine, numbered_lines
from sirocco.loadgen.live_lines import NumberedLine, is_live
from sirocco.model.errors import AlreadyExists, InvalidArgument, SiroccoError
from sirocco.model.json_text import load_json
from sirocco.model.query import Query, parse_query
from sirocco.runtime.process.gzip_files import LINE_BYTES_MAX

# Input from a pipe is kept in memory up to this size, and the rest on disk.
KEPT_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class QueryLine:
    """A valid line.

    Attributes:
        line: Its number, from 1.
        members: The query as written, its region as a rect, circle or polygon.
        query: The query as read.
    """

    line: int
    members: dict[str, Any]
    query: Query

    @property
    def is_standing(self) -> bool:
        """Whether the query is registered for notifications instead of being searched once."""
        return self.query.mode == "continuous"


def read_queries(
    path: Path, name: str, *, kept_bytes_max: int = KEPT_BYTES_MAX, looks_max: int = LOOKS_MAX
) -> Iterator[QueryLine | BadLine]:
    """Yields the queries of a file or a pipe.

    There is one per line, or JSON over several lines, or an array. An equal repeat of a query is
    skipped. Repeats are checked at the end, by reading the file again, so that a file of millions
    of queries is not kept in memory.

    Args:
        path: The file or pipe, plain or gzip.
        name: Its name in errors.
        kept_bytes_max: Bytes of a pipe that are kept in memory.
        looks_max: See `query_documents`.

    Raises:
        OSError: The file cannot be read.
    """
    first_line: dict[str, int] = {}
    repeats: list[QueryLine] = []
    with SpooledTemporaryFile(kept_bytes_max) as kept:
        lines = _Lines(path, kept)
        try:
            for number, line in query_documents(lines.read(), looks_max):
                try:
                    found = _parse_line(number, line)
                except InvalidArgument as error:
                    yield BadLine(name, number, error)
                    continue
                if found.query.id not in first_line:
                    first_line[found.query.id] = number
                    yield found
                else:
                    repeats.append(found)
        except DamagedFileError as error:
            yield BadLine(name, error.line, InvalidArgument(str(error), field="query"))
        yield from _check_repeats(lines, name, first_line, repeats)


class _Lines:
    """The lines of a file or a pipe; a pipe is stored, to be read a second time."""

    def __init__(self, path: Path, kept: IO[bytes]) -> None:
        self._path = path
        self._is_live = is_live(path)
        self._kept = kept

    def read(self) -> Iterator[NumberedLine]:
        """Yields the lines for the first time."""
        for number, line in numbered_lines(self._path):
            if self._is_live:
                self._kept.write(b"%d %b\n" % (number, line.removesuffix(b"\n")))
            yield number, line

    def read_again(self) -> Iterator[NumberedLine]:
        """Yields the lines that were read."""
        if not self._is_live:
            yield from numbered_lines(self._path)
            return
        self._kept.seek(0)
        while kept := self._kept.readline():
            number, _, line = kept.partition(b" ")
            yield int(number), line


def _parse_line(number: int, line: bytes) -> QueryLine:
    if len(line) > LINE_BYTES_MAX:
        raise InvalidArgument(f"is longer than {LINE_BYTES_MAX} bytes", field="query")
    try:
        members = with_plain_region(load_json(line, "query"))
    except InvalidRegion as error:
        raise InvalidArgument(error.message, field=error.field) from None
    return QueryLine(number, members, parse_query(members))


def _check_repeats(
    lines: _Lines, name: str, first_line: dict[str, int], repeats: list[QueryLine]
) -> Iterator[BadLine]:
    """Yields the repeats that differ from the first query of their id."""
    if not repeats:
        return
    repeated = {repeat.query.id for repeat in repeats}
    wanted = {first_line[query_id] for query_id in repeated}
    firsts: dict[str, Query] = {}
    for number, line in query_documents(lines.read_again()):
        if number in wanted:
            # Several objects of an array may be on one line.
            with suppress(InvalidArgument):
                query = _parse_line(number, line).query
                if first_line[query.id] == number:
                    firsts.setdefault(query.id, query)
            if len(firsts) == len(repeated):
                break
    for repeat in repeats:
        if firsts[repeat.query.id] != repeat.query:
            earlier = first_line[repeat.query.id]
            error: SiroccoError = AlreadyExists(
                f"{repeat.query.id!r:.80} is also the id of the query in line {earlier}", field="id"
            )
            yield BadLine(name, repeat.line, error)
