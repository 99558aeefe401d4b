"""Computes from the slots' logs, record by record, which versions of queries they hold, and when.

By the simplest rules: a record counts for a source if it continues the records taken before, the
greatest revision of a query wins, and a slot's time is the least time of its sources.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from sirocco.protocol.contract.messages import NOT_COPIED, Installed, Routed

# Earlier than all times.
NEVER_BEFORE_MS = -(1 << 62)


@dataclass(slots=True)
class Stay:
    """A version of a query in one slot.

    Attributes:
        begin: offset in the slot's log from which the slot holds it.
        begin_ms: the slot's time there.
        end: offset at which it ends; None while it has not ended.
        end_ms: the slot's time there.
        is_copied: it came by a change of the map: earlier objects do not concern it there.
    """

    begin: int
    begin_ms: int
    end: int | None = None
    end_ms: int = 0
    is_copied: bool = False


# Query handle, revision.
Version = tuple[int, int]


class SlotTruth:
    """All slots.

    Attributes:
        stays: version → slot → its time there.
        slot_counts: version → the number of its slots; 0 if not given.
    """

    def __init__(self, intake_partitions: int) -> None:
        self._intake_partitions = intake_partitions
        self._reached: dict[tuple[int, int], int] = {}
        self._times_ms: dict[tuple[int, int], int] = {}
        # (slot, handle) → the greatest revision sent there.
        self._newest: dict[tuple[int, int], int] = {}
        self.stays: dict[Version, dict[int, Stay]] = {}
        self.slot_counts: dict[Version, int] = {}
        # Slot → offsets of records that advanced its time, and the time after each.
        self._grown: dict[int, tuple[list[int], list[int]]] = {}
        # (slot, handle) → the farthest place from which it was copied there.
        self._copied_at: dict[tuple[int, int], int] = {}

    def time_ms(self, slot: int) -> int:
        """Returns the slot's time: no later object is older."""
        sources = range(self._intake_partitions)
        return min(self._times_ms.get((slot, source), NEVER_BEFORE_MS) for source in sources)

    def note_time(self, slot: int, offset: int) -> None:
        """Takes the slot's time after a record."""
        offsets, times_ms = self._grown.setdefault(slot, ([], []))
        time_ms = self.time_ms(slot)
        if not times_ms or time_ms > times_ms[-1]:
            offsets.append(offset)
            times_ms.append(time_ms)

    def passed_at(self, slot: int, time_ms: int) -> int | None:
        """Returns the offset of the record with which the slot's time passed a time."""
        offsets, times_ms = self._grown.get(slot, ([], []))
        at = bisect_right(times_ms, time_ms)
        return offsets[at] if at < len(offsets) else None

    def reached(self, slot: int, source: int) -> int:
        """Returns the end of the slot's log for a source, up to the first gap."""
        return self._reached.get((slot, source), 0)

    def routed(self, slot: int, routed: Routed) -> list[int | None]:
        """Takes a record of objects; returns for each interval the first new row."""
        intervals = routed.intervals
        fresh_from: list[int | None] = []
        for source, begin, end, time_ms in zip(
            intervals.sources.tolist(),
            intervals.begins.tolist(),
            intervals.ends.tolist(),
            intervals.times_ms.tolist(),
            strict=True,
        ):
            key = slot, source
            reached = self._reached.get(key, 0)
            is_next = begin <= reached < end
            fresh_from.append(reached if is_next else None)
            if is_next:
                self._reached[key] = end
            if begin <= reached:
                self._times_ms[key] = max(time_ms, self._times_ms.get(key, NEVER_BEFORE_MS))
        return fresh_from

    def installed(self, slot: int, offset: int, installed: Installed) -> None:
        """Takes a record of query changes."""
        for row, handle in enumerate(installed.names.handles.tolist()):
            revision = int(installed.revisions[row])
            version = handle, revision
            if installed.copied_at != NOT_COPIED:
                self._copied(slot, offset, version, installed.copied_at)
                continue
            self.slot_counts[version] = int(installed.slot_counts[row])
            if self._ends(slot, offset, handle, revision):
                stay = Stay(offset, self.time_ms(slot))
                self.stays.setdefault(version, {})[slot] = stay
        for handle, revision in zip(
            installed.removed.tolist(), installed.removed_revisions.tolist(), strict=True
        ):
            # Copies for a map that has since been replaced were sent late.
            if not NOT_COPIED < installed.copied_at < self._copied_at.get((slot, handle), 0):
                self._ends(slot, offset, handle, revision)

    def _copied(self, slot: int, offset: int, version: Version, copied_at: int) -> None:
        """Takes a copy: it counts if its sender knew all changes of the query in the slot."""
        handle, revision = version
        newest = self._newest.get((slot, handle), -1)
        stay = self.stays.get((handle, newest), {}).get(slot)
        is_here = stay is not None and stay.end is None
        if is_here and newest == revision:
            self._note_copied(slot, handle, copied_at)
        if newest >= (revision if is_here else copied_at):
            return
        self._note_copied(slot, handle, copied_at)
        self._ends(slot, offset, handle, newest + 1)
        self._newest[slot, handle] = revision
        copy = Stay(offset, self.time_ms(slot), is_copied=True)
        former = self.stays.setdefault(version, {}).get(slot)
        if former is None or former.is_copied:
            self.stays[version][slot] = copy

    def _note_copied(self, slot: int, handle: int, copied_at: int) -> None:
        key = slot, handle
        self._copied_at[key] = max(copied_at, self._copied_at.get(key, 0))

    def behind(self, handle: int, revision: int) -> list[int]:
        """Returns the slots that hold an older version of a query."""
        return [
            slot
            for (own, known), stays in self.stays.items()
            if own == handle and known < revision
            for slot, stay in stays.items()
            if stay.end is None
        ]

    def _ends(self, slot: int, offset: int, handle: int, revision: int) -> bool:
        """Ends the version of a query in a slot; returns whether the revision is new."""
        key = slot, handle
        newest = self._newest.get(key, -1)
        if revision <= newest:
            return False
        self._newest[key] = revision
        former = self.stays.get((handle, newest), {}).get(slot)
        if former is not None:
            former.end, former.end_ms = offset, self.time_ms(slot)
        return True
