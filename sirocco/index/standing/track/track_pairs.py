"""Pairs of values and queries: events and members."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TrackHits:
    """Events of a batch of objects, as far as queries ask for them.

    Attributes:
        object_rows: i4[m], numbers of objects within the batch, ascending.
        query_rows: i4[m], rows returned by `TrackIndex.insert`.
        events: u1[m], ENTERS, INSIDE or EXITS; of one object exits are first, then enters. An
            object causes at most one event of a query: if it enters and that is not asked for, it
            is inside like those that stay.
    """

    object_rows: npt.NDArray[np.int32]
    query_rows: npt.NDArray[np.int32]
    events: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        """Returns the number of events."""
        return len(self.object_rows)


@dataclass(frozen=True, slots=True)
class Members:
    """Values that are inside queries; m pairs, ordered by query and value.

    Attributes:
        query_rows: i4[m].
        values: u8[m], as in objects.
        numbers: i4[m], the newest object of each that satisfied the query, `NOT_KNOWN` if it was
            not kept; see `TrackIndex.objects`.
    """

    query_rows: npt.NDArray[np.int32]
    values: npt.NDArray[np.uint64]
    numbers: npt.NDArray[np.int32]

    def __len__(self) -> int:
        """Returns the number of pairs."""
        return len(self.query_rows)

    def where(self, is_wanted: npt.NDArray[np.bool_]) -> Members:
        """Returns some of the pairs, in their order."""
        return Members(self.query_rows[is_wanted], self.values[is_wanted], self.numbers[is_wanted])


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
