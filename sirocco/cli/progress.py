"""A bar on standard error for what takes longer than a moment; nothing where nobody looks."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


class Bar:
    """Progress of one thing after another.

    Shown only where standard error is a terminal.
    """

    def __init__(self) -> None:
        console = Console(stderr=True)
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
        """Turns to the next thing."""
        self._progress.reset(self._task, total=total, description=what, note="")

    def advance(self, count: int, note: str = "") -> None:
        """So many more are done."""
        self._progress.update(self._task, advance=count, note=note)
