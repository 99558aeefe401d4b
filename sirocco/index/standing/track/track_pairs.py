"""Pairs of values and queries: events and members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sirocco.index.base.stored_rows import StoredRows
from sirocco.kernels.standing.track_sets import DWELLS


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the values of queries must be inside and outside; n queries.

    Attributes:
        dwells_ms, leaves_ms: i8[n], see `TrackedRows`.
    """

    dwells_ms: npt.NDArray[np.int64]
    leaves_ms: npt.NDArray[np.int64]

    @property
    def are_any(self) -> npt.NDArray[np.bool_]:
        """bool[n], whether the query waits at all."""
        return np.asarray((self.dwells_ms > 0) | (self.leaves_ms > 0))


@dataclass(frozen=True, slots=True)
class StayEvents:
    """Events of queries with stays, which are reported together; m events.

    Attributes:
        objects: those reported, k rows.
        object_rows: i4[m], rows of `objects`.
        query_rows: i4[m].
        events: u1[m], ENTERS, INSIDE or EXITS.
        order: i8[m], a group for each: that of a lower group comes first.
    """

    objects: StoredRows
    object_rows: npt.NDArray[np.int32]
    query_rows: npt.NDArray[np.int32]
    events: npt.NDArray[np.uint8]
    order: npt.NDArray[np.int64]

    @classmethod
    def concat(cls, parts: Sequence[StayEvents]) -> StayEvents:
        """Returns the events of several parts, at least one, as those of one: in their order."""
        if len(parts) == 1:
            return parts[0]
        rows, groups = [], []
        objects = group = 0
        for part in parts:
            rows.append(part.object_rows + np.int32(objects))
            groups.append(part.order + group)
            objects += len(part.objects)
            group += int(part.order.max()) + 1
        return cls(
            StoredRows.concat([part.objects for part in parts]),
            np.concatenate(rows),
            np.concatenate([part.query_rows for part in parts]),
            np.concatenate([part.events for part in parts]),
            np.concatenate(groups),
        )


@dataclass(frozen=True, slots=True)
class TrackHits:
    """Events of a batch of objects, as far as queries ask for them.

    Attributes:
        object_rows: i4[m], numbers of objects within the batch, ascending.
        query_rows: i4[m], rows returned by `TrackIndex.insert`.
        events: u1[m], ENTERS, INSIDE or EXITS; of one object exits are first, then enters. An
            object causes at most one event of a query: if it enters and that is not asked for, it
            is inside like those that stay.
        stay_events: events of queries with stays, which are not among the others; None without any.
    """

    object_rows: npt.NDArray[np.int32]
    query_rows: npt.NDArray[np.int32]
    events: npt.NDArray[np.uint8]
    stay_events: StayEvents | None = None

    def __len__(self) -> int:
        """Returns the number of events, without `stay_events`."""
        return len(self.object_rows)

    def where(self, is_wanted: npt.NDArray[np.bool_]) -> TrackHits:
        """Returns some of the events, in their order, without `stay_events`."""
        return TrackHits(
            self.object_rows[is_wanted], self.query_rows[is_wanted], self.events[is_wanted]
        )


@dataclass(frozen=True, slots=True)
class Members:
    """Values that are inside queries; m pairs, ordered by query and value.

    Attributes:
        query_rows: i4[m].
        values: u8[m], as in objects.
        numbers: i4[m], the newest object of each that satisfied the query, `NOT_KNOWN` if it was
            not kept; see `TrackIndex.objects`.
        phases: i8[m], REPORTED, DWELLS or LEAVES; None: all are REPORTED.
        sinces_ms: i8[m], when the value came inside (DWELLS) or outside (LEAVES), else 0; None with
            `phases`.
    """

    query_rows: npt.NDArray[np.int32]
    values: npt.NDArray[np.uint64]
    numbers: npt.NDArray[np.int32]
    phases: npt.NDArray[np.int64] | None = None
    sinces_ms: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Returns the number of pairs."""
        return len(self.query_rows)

    def where(self, is_wanted: npt.NDArray[np.bool_]) -> Members:
        """Returns some of the pairs, in their order."""
        return Members(
            self.query_rows[is_wanted],
            self.values[is_wanted],
            self.numbers[is_wanted],
            None if self.phases is None else self.phases[is_wanted],
            None if self.sinces_ms is None else self.sinces_ms[is_wanted],
        )

    @property
    def have_entered(self) -> npt.NDArray[np.bool_]:
        """bool[m], which of them do not dwell: they leave with an event."""
        if self.phases is None:
            return np.ones(len(self), np.bool_)
        return np.asarray(self.phases != DWELLS)


def named_values(
    rows: npt.NDArray[np.int64],
    keys: npt.NDArray[np.uint64],
    object_rows: npt.NDArray[np.int32],
    followed: npt.NDArray[np.uint64],
) -> npt.NDArray[np.int64]:
    """Returns i8[p], the value of each pair's object; -1 if the object has none.

    Args:
        rows: i8[v], the objects of values.
        keys: u8[v], their attributes.
        object_rows: i4[p], the objects of pairs.
        followed: u8[p], the attribute that each query tracks.
    """
    distinct, numbers = np.unique(keys, return_inverse=True)
    known = rows * len(distinct) + numbers
    order = np.argsort(known)
    at = np.searchsorted(distinct, followed).clip(max=len(distinct) - 1)
    wanted = object_rows.astype(np.int64) * len(distinct) + at
    places = np.searchsorted(known, wanted, sorter=order).clip(max=len(known) - 1)
    found = order[places]
    is_found = (distinct[at] == followed) & (known[found] == wanted)
    return np.where(is_found, found, -1)
