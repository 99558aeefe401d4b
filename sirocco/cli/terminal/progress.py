"""A progress bar on standard error for longer work; nothing without a terminal."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from sirocco.cli.terminal.terminal import console as console_of


class Bar:
    """Progress of one task after another.

    Attributes:
        is_shown: Whether standard error is a terminal; elsewhere nothing is shown.
    """

    def __init__(self) -> None:
        console = console_of(stderr=True)
        self.is_shown = console.is_terminal
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, note="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def begin(self, what: str, total: int | None = None) -> None:
        """Starts the next task."""
        self._progress.reset(self._task, total=total, description=what, note="")

    def advance(self, count: int, note: str = "") -> None:
        """Adds `count` finished items."""
        self._progress.update(self._task, advance=count, note=note)


# Files up to this size are counted first, which takes a second at most.
_COUNTED_BYTES_MAX = 1 << 30
_PIECE_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"


def lines_total(path: Path, bar: Bar) -> int | None:
    """Returns the number of lines of a plain file; None without a terminal, or for large files."""
    if not bar.is_shown or not path.is_file() or path.stat().st_size > _COUNTED_BYTES_MAX:
        return None
    total, last = 0, b"\n"
    with path.open("rb") as source:
        piece = source.read(_PIECE_BYTES)
        if piece.startswith(_GZIP):
            return None
        while piece:
            total += piece.count(b"\n")
            last = piece[-1:]
            piece = source.read(_PIECE_BYTES)
    return total if last == b"\n" else total + 1
