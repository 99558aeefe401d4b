"""The queries of a track index, by row: what they track, and what is counted for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sirocco.index.base.growable import GrowableArray
from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.track.track_pairs import Waits
from sirocco.kernels.standing.track_sets import NO_TENANT, TENANT_COLUMNS, USED

__all__ = ["TrackedRows"]

# All columns of one row.
ROW_BYTES = 8 + 1 + 1 + 4 + 4 + 8 + 8 + 4 + 1 + 8 + 8


class TrackedRows:
    """Owns the columns; their arrays are stale after `put`.

    Attributes:
        keys: u8, the attribute that each query tracks.
        events: u1, bit 1 << e is set if the query asks for event e.
        flags: u1, those of `QueryRows`.
        dwells_ms, leaves_ms: i8, how long a value must be inside before it has entered, and outside
            before it has left; 0: at once.
        has_stays: u1, 1 if the query has a stay for each value inside: it waits, or continues one
            that did.
        generations: i4, how many queries the row has held: entries of earlier ones do not count.
        members: i4, values inside the query.
        row_bytes: i8, bytes counted for them.
        stamps: i8, scratch of the kernel that follows values.
        tenant_rows: i4, the row of `tenants` whose share the query uses, or `NO_TENANT`.
        tenants: i8[t, TENANT_COLUMNS], what each tenant's queries use.
    """

    __slots__ = (
        "_tenant_numbers",
        "dwells_ms",
        "events",
        "flags",
        "generations",
        "has_stays",
        "keys",
        "leaves_ms",
        "members",
        "row_bytes",
        "stamps",
        "tenant_rows",
        "tenants",
    )

    def __init__(self) -> None:
        self.keys = GrowableArray(np.uint64, 256)
        self.events = GrowableArray(np.uint8, 256)
        self.flags = GrowableArray(np.uint8, 256)
        self.dwells_ms = GrowableArray(np.int64, 256)
        self.leaves_ms = GrowableArray(np.int64, 256)
        self.has_stays = GrowableArray(np.uint8, 256)
        self.generations = GrowableArray(np.int32, 256)
        self.members = GrowableArray(np.int32, 256)
        self.row_bytes = GrowableArray(np.int64, 256)
        self.stamps = GrowableArray(np.int64, 256)
        self.tenant_rows = GrowableArray(np.int32, 256)
        # Tenant, by its hash → row of `tenants`.
        self._tenant_numbers: dict[int, int] = {}
        self.tenants = np.zeros((4, TENANT_COLUMNS), np.int64)

    def put(
        self,
        rows: npt.NDArray[np.int32],
        queries: QueryRows,
        keys: npt.NDArray[np.uint64],
        events: npt.NDArray[np.uint8],
        tenants: npt.NDArray[np.uint64] | None,
        waits: Waits | None,
    ) -> None:
        """Sets the rows of new queries, at least one; arguments as of `TrackIndex.insert`."""
        columns = self.keys, self.events, self.flags, self.generations, self.members
        waiting = self.dwells_ms, self.leaves_ms, self.has_stays
        for column in (*columns, *waiting, self.stamps, self.row_bytes, self.tenant_rows):
            column.reserve(int(rows.max()) + 1)
        self.keys.array[rows] = keys
        self.events.array[rows] = events
        self.flags.array[rows] = queries.flags
        self.dwells_ms.array[rows] = 0 if waits is None else waits.dwells_ms
        self.leaves_ms.array[rows] = 0 if waits is None else waits.leaves_ms
        self.has_stays.array[rows] = 0 if waits is None else waits.are_any
        self.generations.array[rows] += 1
        self.members.array[rows] = 0
        self.row_bytes.array[rows] = 0
        self.tenant_rows.array[rows] = NO_TENANT if tenants is None else self._rows_of(tenants)

    def _rows_of(self, tenants: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """Returns i4[n], rows of `tenants`; new ones for tenants that had no query so far."""
        numbers = self._tenant_numbers
        rows = [
            numbers.setdefault(tenant, len(numbers)) if tenant else NO_TENANT
            for tenant in tenants.tolist()
        ]
        if len(numbers) > len(self.tenants):
            larger = np.zeros((2 * len(numbers), TENANT_COLUMNS), np.int64)
            larger[: len(self.tenants)] = self.tenants
            self.tenants = larger
        return np.array(rows, np.int32)

    def end_waits(self, rows: npt.NDArray[np.int32]) -> None:
        """Makes ended queries, with no value inside, the same as others that have ended."""
        for column in (self.dwells_ms, self.leaves_ms, self.has_stays):
            column.array[rows] = 0

    def end(self, rows: npt.NDArray[np.int32]) -> None:
        """Gives back the shares of their tenants that queries use (i4[k], each once)."""
        owned = rows[self.tenant_rows.array[rows] != NO_TENANT]
        used = self.row_bytes.array[owned]
        np.subtract.at(self.tenants[:, USED], self.tenant_rows.array[owned], used)
        self.tenant_rows.array[owned] = NO_TENANT

    def tenants_of(self, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
        """Returns u8[n], the hash of each query's tenant; 0 for none."""
        hashes = np.array([*self._tenant_numbers, 0], np.uint64)
        # NO_TENANT is the last.
        of_rows: npt.NDArray[np.uint64] = hashes[self.tenant_rows.array[rows]]
        return of_rows
