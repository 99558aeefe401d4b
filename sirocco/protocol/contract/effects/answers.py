"""The results of requests, which are sent to their callers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import SiroccoError


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one change request: a revision or an error."""

    revision: int
    error: SiroccoError | None = None


@dataclass(frozen=True, slots=True)
class Outcomes(Sequence[Outcome]):
    """The results of many change requests, as columns.

    Attributes:
        revisions: i8[n], of those without an error.
        errors: row → error.
    """

    revisions: NDArray[np.int64]
    errors: dict[int, SiroccoError] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.revisions)

    @overload
    def __getitem__(self, row: int) -> Outcome: ...

    @overload
    def __getitem__(self, row: slice) -> Sequence[Outcome]: ...

    def __getitem__(self, row: int | slice) -> Outcome | Sequence[Outcome]:
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        return self._of(row)

    def __iter__(self) -> Iterator[Outcome]:
        return map(self._of, range(len(self)))

    def _of(self, row: int) -> Outcome:
        return Outcome(int(self.revisions[row]), self.errors.get(row))

    def put(self, rows: NDArray[np.integer], outcomes: Sequence[Outcome]) -> None:
        """Sets the results of some rows."""
        if isinstance(outcomes, Outcomes):
            self.revisions[rows] = outcomes.revisions
            self.errors.update((int(rows[row]), error) for row, error in outcomes.errors.items())
            return
        for row, each in zip(rows.tolist(), outcomes, strict=True):
            self.revisions[row] = each.revision
            if each.error is not None:
                self.errors[row] = each.error


def errors_of(outcomes: Sequence[Outcome]) -> list[SiroccoError]:
    """Returns the errors among some outcomes."""
    if isinstance(outcomes, Outcomes):
        return list(outcomes.errors.values())
    return [each.error for each in outcomes if each.error is not None]


@dataclass(frozen=True, slots=True)
class Answer:
    """Barrier. Send the outcomes to the caller of the event with this token."""

    token: int
    outcomes: Sequence[Outcome]
