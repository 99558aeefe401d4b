"""Options for the format of a file of objects, and the reading by them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sirocco.cli.terminal.paths import filled
from sirocco.cli.terminal.status import CommandError

if TYPE_CHECKING:
    from sirocco.loadgen.lines import ReadBatch

_FORMATS = ("ndjson", "geojson", "csv", "tsv", "parquet")


def add_format(parser: argparse._ActionsContainer) -> None:
    """Adds the options to a parser."""
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        help="of the objects (by name or content)",
    )
    parser.add_argument(
        "--map",
        type=filled,
        metavar="lon=COLUMN,…",
        help="columns for lon, lat, ts, id, text=A+B; others are attributes",
    )


def read_by_options(
    path: Path, name: str, batch_rows: int, form: str | None, columns: str | None
) -> Iterator[ReadBatch]:
    """Yields the objects of a file in batches.

    Args:
        path: The file.
        name: Its name in errors.
        batch_rows: Greatest number of objects of a batch.
        form: The option --format.
        columns: The option --map.

    Raises:
        CommandError: The whole file cannot be used.
        OSError: It cannot be read.
    """
    from sirocco.formats.column_map import read_map  # noqa: PLC0415 - the engine
    from sirocco.loadgen.object_files import read_object_file  # noqa: PLC0415
    from sirocco.model.errors import InvalidArgument  # noqa: PLC0415

    try:
        chosen = None if columns is None else read_map(columns)
        yield from read_object_file(path, name, batch_rows, form=form, chosen=chosen)
    except InvalidArgument as error:
        raise CommandError(f"{name}: {error}") from None
