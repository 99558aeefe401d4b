"""The live queries of a registry partition: what their owner knows of each."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.handle_table import HandleTable
from sirocco.protocol.effects import State
from sirocco.protocol.messages import NEVER_MS, NO_REVISION


class LiveQueries:
    """The live queries of one registry partition, in arrays: about 50 bytes each.

    Slot sets are interned: queries are many, the sets of slots that regions meet are few.
    """

    def __init__(self) -> None:
        self.rows = HandleTable()
        self.handles = np.zeros(64, np.uint64)
        self.revisions = np.full(64, NO_REVISION, np.int64)
        self.digests = np.zeros(64, np.uint64)
        self.expires_ms = np.full(64, NEVER_MS, np.int64)
        self.slot_sets = np.zeros(64, np.int32)
        self._sets: list[tuple[int, ...]] = [()]
        self._set_ids: dict[tuple[int, ...], int] = {(): 0}
        self._free: list[int] = []
        self._end = 0

    def __len__(self) -> int:
        return len(self.rows)

    def known(self, handles: list[int]) -> list[tuple[int, int, int]]:
        """Revision, digest, expiry (epoch ms) of each query; `NO_REVISION` when there is none."""
        rows = self.rows.get(np.array(handles, np.uint64))
        is_here = rows >= 0
        revisions = np.where(is_here, self.revisions[rows], NO_REVISION)
        digests = np.where(is_here, self.digests[rows], np.uint64(0))
        expires_ms = self.expires_ms[rows]
        return list(zip(revisions.tolist(), digests.tolist(), expires_ms.tolist(), strict=True))

    def revision(self, handle: int) -> int:
        """The revision of a query, `NO_REVISION` when there is none."""
        return self.known([handle])[0][0]

    def slots(self, row: int) -> tuple[int, ...]:
        """The slots that hold a query."""
        return self._sets[int(self.slot_sets[row])]

    def put(
        self,
        handles: NDArray[np.uint64],
        revisions: list[int],
        digests: list[int],
        expires_ms: NDArray[np.int64],
        slots: list[tuple[int, ...]],
    ) -> None:
        """Enters queries or their new versions; no handle twice."""
        rows = self.rows.get(handles)
        fresh = np.flatnonzero(rows < 0)
        rows[fresh] = [self._free.pop() if self._free else self._extend() for _ in fresh]
        self.rows.put(handles[fresh], rows[fresh])
        self.handles[rows], self.revisions[rows] = handles, revisions
        self.digests[rows] = np.array(digests, np.uint64)
        self.expires_ms[rows] = expires_ms
        self.slot_sets[rows] = [self._set_id(each) for each in slots]

    def drop(self, handles: NDArray[np.uint64]) -> None:
        """Removes queries that are here."""
        rows = self.rows.get(handles)
        self.rows.drop(handles)
        self.revisions[rows] = NO_REVISION
        self.expires_ms[rows] = NEVER_MS
        self._free.extend(rows.tolist())

    def expired(self, now_ms: int) -> list[int]:
        """Handles of the queries whose lifetime ended."""
        rows = np.flatnonzero(self.expires_ms[: self._end] <= now_ms)
        return [int(handle) for handle in self.handles[rows]]

    def state(self) -> dict[str, NDArray[Any]]:
        """All queries as columns, for a checkpoint."""
        rows = np.flatnonzero(self.revisions[: self._end] != NO_REVISION)
        sets = [self.slots(int(row)) for row in rows]
        offsets = np.zeros(len(sets) + 1, np.int64)
        np.cumsum([len(slots) for slots in sets], out=offsets[1:])
        flat = np.array([slot for slots in sets for slot in slots], np.int32)
        return {
            "handles": self.handles[rows],
            "revisions": self.revisions[rows],
            "digests": self.digests[rows],
            "expires_ms": self.expires_ms[rows],
            "slot_offsets": offsets,
            "slots": flat,
        }

    def restore(self, state: State) -> None:
        """Takes all queries of a checkpoint; for an empty table."""
        flat, offsets = state["slots"].tolist(), state["slot_offsets"].tolist()
        self.put(
            np.asarray(state["handles"], np.uint64),
            state["revisions"].tolist(),
            state["digests"].tolist(),
            np.asarray(state["expires_ms"], np.int64),
            [tuple(flat[begin:end]) for begin, end in pairwise(offsets)],
        )

    def _set_id(self, slots: tuple[int, ...]) -> int:
        set_id = self._set_ids.setdefault(slots, len(self._sets))
        if set_id == len(self._sets):
            self._sets.append(slots)
        return set_id

    def _extend(self) -> int:
        if self._end == len(self.handles):
            room = 2 * self._end
            for name in ("handles", "revisions", "digests", "expires_ms", "slot_sets"):
                setattr(self, name, np.resize(getattr(self, name), room))
        self._end += 1
        return self._end - 1
