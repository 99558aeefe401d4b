"""The archive manifest of a slot: which slices are archived, and which may be deleted.

Slices are merged in memory after they are written, because searches want few. A merged slice relies
on its archived parts until it is full and merged no more; then it is written itself. So each object
is written twice in its life, however often it is merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.slices import SealedSlice
from sirocco.protocol.contract.effects import State

Span = tuple[int, int]

# A slice of more parts is written again: each is a file to read when the slot moves.
PARTS_MAX = 32


def slice_prefix(slot: int) -> str:
    """Returns the common prefix of the names of all slices of a slot."""
    return f"slices/{slot:05}/"


def slice_name(slot: int, span: Span) -> str:
    """Returns the name of an archived slice: its slot, and the first and last of its objects."""
    return f"{slice_prefix(slot)}{span[0]:016}-{span[1]:016}"


def slice_names(slot: int, state: State) -> list[str]:
    """Returns the names of the slices that a state relies on."""
    if "slices" not in state:
        return []
    return [slice_name(slot, (int(first), int(last))) for first, last in state["slices"]]


def span_of(slice_: SealedSlice) -> Span:
    """Returns the numbers of the first and the last object of a slice."""
    return slice_.first_seq, slice_.last_seq


def arrivals_of(slice_: SealedSlice) -> Span:
    """Returns the least and the greatest arrival in a slice, epoch ms."""
    return slice_.arrival_first_ms, slice_.arrival_last_ms


@dataclass(slots=True, kw_only=True)
class ArchiveManifest:
    """The archived slices of one slot.

    Attributes:
        slot: its number.
        archived: spans that are in the archive for certain, with their `arrivals_of`.
        archive_only: those of them that are in memory no more, also not in a larger slice: only the
            archive has them.
        saved_seq: the archive has all objects up to this one that are in slices; -1 before any.
        earliest_ms: from when on all arrivals are kept, in memory or in the archive; None while
            nothing was lost.
    """

    slot: int
    archived: dict[Span, Span] = field(default_factory=dict)
    archive_only: dict[Span, Span] = field(default_factory=dict)
    saved_seq: int = -1
    earliest_ms: int | None = None
    # Name of a checkpoint being written → the slices it relies on. Names sort as offsets do.
    _saving: dict[str, dict[Span, Span]] = field(default_factory=dict)
    # The slices of the checkpoints that are kept: the newest in force, and the one before it.
    _former: frozenset[Span] = frozenset()
    _newest: frozenset[Span] = frozenset()
    # The newest one is another owner's: its slices are not known here.
    _is_foreign: bool = False

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint is being written to the archive."""
        return bool(self._saving)

    def restore(self, state: State, slices: Iterable[SealedSlice]) -> None:
        """Takes the slices that a checkpoint relies on."""
        rows = state["gone_slices"].tolist()
        self.archive_only = {
            (first, last): (from_ms, upto_ms) for first, last, from_ms, upto_ms in rows
        }
        self.archived = {span_of(each): arrivals_of(each) for each in slices}
        self._newest = frozenset(self.archived)
        self.saved_seq = max((last for _, last in self._newest), default=-1)
        self.archived |= self.archive_only
        self.earliest_ms = next(iter(state["earliest_ms"].tolist()), None)

    def state(self) -> dict[str, NDArray[np.int64]]:
        """Returns the state for a checkpoint."""
        rows = [(*span, *arrivals) for span, arrivals in sorted(self.archive_only.items())]
        earliest = [] if self.earliest_ms is None else [self.earliest_ms]
        return {
            "gone_slices": np.array(rows, np.int64).reshape(-1, 4),
            "earliest_ms": np.array(earliest, np.int64),
        }

    def parts(self, span: Span) -> list[Span]:
        """Returns the archived slices that hold just these objects, in order; none if some lack."""
        if span in self.archived:
            return [span]
        ends: dict[int, int] = {}
        for first, last in self.archived:
            if span[0] <= first and last <= span[1]:
                ends[first] = max(last, ends.get(first, last))
        parts: list[Span] = []
        at = span[0]
        while at in ends:
            parts.append((at, ends[at]))
            at = ends[at] + 1
        return parts if at == span[1] + 1 else []

    def begin_save(
        self, name: str, slices: Sequence[SealedSlice], full_rows: int
    ) -> tuple[list[Span], list[tuple[str, SealedSlice]]]:
        """Notes the slices that a checkpoint relies on.

        Args:
            name: of the checkpoint.
            slices: those in memory.
            full_rows: slices of this many rows are written whole, also if their parts are archived.

        Returns:
            The spans that it relies on, and the slices to be written with it.
        """
        needed: dict[Span, Span] = {}
        new_slices: list[tuple[str, SealedSlice]] = []
        for each in slices:
            span = span_of(each)
            parts = self.parts(span)
            is_settled = span in self.archived or len(each) < full_rows
            if parts and is_settled and len(parts) <= PARTS_MAX:
                needed |= {part: self.archived[part] for part in parts}
                continue
            needed[span] = arrivals_of(each)
            new_slices.append((slice_name(self.slot, span), each))
        self._saving[name] = needed
        return list(needed), new_slices

    def durable(self, name: str) -> list[str]:
        """Takes the newest checkpoint; returns names of slices that no process will load."""
        needed = self._written(name)
        if needed is None:
            # A former owner wrote it long after it lost the slot.
            self._is_foreign = True
            return []
        self._former, self._newest = self._newest, needed
        if self._is_foreign:
            # The checkpoint before it is kept as well, and may rely on any of them.
            self._is_foreign = False
            return []
        kept = self._newest | self._former | self.archive_only.keys()
        kept = kept.union(*self._saving.values())
        stale = sorted(self.archived.keys() - kept)
        for span in stale:
            del self.archived[span]
        return [slice_name(self.slot, span) for span in stale]

    def superseded(self, name: str) -> None:
        """Notes a written checkpoint that is not in force: another has a greater offset."""
        self._written(name)

    def _written(self, name: str) -> frozenset[Span] | None:
        """Notes that a checkpoint's slices are archived; None if it is another owner's."""
        needed = self._saving.pop(name, None)
        if needed is None:
            return None
        for earlier in [each for each in self._saving if each < name]:
            del self._saving[earlier]
        self.archived |= needed
        self.saved_seq = max((last for _, last in needed), default=self.saved_seq)
        return frozenset(needed)

    def note_evicted(self, slice_: SealedSlice) -> None:
        """Notes that a slice has left memory; it can be searched only if it is archived."""
        parts = self.parts(span_of(slice_))
        self.archive_only |= {part: self.archived[part] for part in parts}
        if not parts:
            self._lost(slice_.arrival_last_ms)

    def forget(self, before_ms: int) -> list[str]:
        """Drops slices all of whose objects arrived before a time; returns their names."""
        old = [span for span, (_, upto_ms) in self.archive_only.items() if upto_ms < before_ms]
        for span in old:
            self._lost(self.archive_only.pop(span)[1])
            self.archived.pop(span, None)
        return [slice_name(self.slot, span) for span in old]

    def archived_upto_ms(self, before_seq: int | None = None) -> int | None:
        """Returns the greatest arrival in slices outside memory; None without any.

        Args:
            before_seq: only slices with an object before this one count; None: all.
        """
        # In another thread, as in `overlapping`.
        return max(
            (
                upto_ms
                for (first_seq, _), (_, upto_ms) in self.archive_only.copy().items()
                if before_seq is None or first_seq < before_seq
            ),
            default=None,
        )

    @property
    def first_name(self) -> str | None:
        """The first slice that any process will load; None if there is none, or it is unknown."""
        spans = self.archived.keys() | set().union(*self._saving.values())
        is_known = bool(spans) and not self._is_foreign
        return slice_name(self.slot, min(spans)) if is_known else None

    def overlapping(self, from_ms: int, upto_ms: int, before_seq: int) -> list[str]:
        """Returns the slices outside memory that may hold arrivals within these bounds, inclusive.

        Args:
            from_ms, upto_ms: epoch ms.
            before_seq: first object of the view that is searched as well: a slice that has left
                memory since is still in it.
        """
        if not self.archive_only:
            return []
        # A search runs in another thread: it copies the items of one moment.
        return [
            slice_name(self.slot, span)
            for span, (first_ms, last_ms) in sorted(self.archive_only.copy().items())
            if first_ms <= upto_ms and last_ms >= from_ms and span[1] < before_seq
        ]

    def _lost(self, last_ms: int) -> None:
        self.earliest_ms = max(self.earliest_ms or last_ms + 1, last_ms + 1)
