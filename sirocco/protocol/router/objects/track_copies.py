"""Copies of objects that go to the slot of a member's value (queries with `track`).

A standing query with `track` must see every object of a value, wherever it is. So a copy of the
object goes to a slot that depends on member and value alone, in addition to the slot of its place.
"""

from __future__ import annotations

from array import array
from collections.abc import Set
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sirocco.model.attributes import members_of
from sirocco.model.objects import ObjectColumns
from sirocco.protocol.contract.messages import FurtherValues, Routed
from sirocco.protocol.contract.track_values import (
    hash_of,
    track_value,
)


@dataclass(frozen=True, slots=True)
class Followed:
    """The copies to be made of a batch of objects; c of them, in the order of the objects.

    An object has at most one copy in a slot, even if several of its values lead there: otherwise
    texts would be repeated for each of a thousand members.

    Attributes:
        keys: the members by whose values any of them is followed.
        rows: i8[c], of the objects.
        members: u4[c], row of `keys`.
        values: u8[c], hash of member and value.
        further: values of copies beyond the first; rows are those of copies.
    """

    keys: tuple[str, ...]
    rows: NDArray[np.int64]
    members: NDArray[np.uint32]
    values: NDArray[np.uint64]
    further: FurtherValues | None = None

    def mark(self, routed: Routed, order: NDArray[np.intp], objects: int) -> Routed:
        """Marks the copies among the rows of `order`, which follow this many objects."""
        tracks = np.concatenate([np.zeros(objects, np.uint32), self.members + np.uint32(1)])
        values = np.concatenate([np.zeros(objects, np.uint64), self.values])
        further = self.further
        if further is not None:
            further = replace(further, rows=further.rows + objects).taken(order, len(order))
        return replace(
            routed,
            track_keys=self.keys,
            tracks=tracks[order],
            track_values=values[order],
            further=further,
        )


def followed(objects: ObjectColumns, keys: Set[str], slots: int) -> Followed | None:
    """Finds the objects that have one of the members; None when none has.

    Args:
        objects: n rows.
        keys: the members. Clients choose them: the cost does not depend on how many there are.
        slots: number of slots over which the values are spread.
    """
    if not len(objects.attributes):
        return None
    # First the copies; then the further values of copies.
    rows, members, values = array("q"), array("L"), array("Q")
    copies, tracks, others = array("q"), array("L"), array("Q")
    numbers: dict[str, int] = {}
    data, offsets = objects.attributes.tobytes(), objects.attribute_offsets.tolist()
    for row, (begin, end) in enumerate(pairwise(offsets)):
        if begin == end:
            continue
        attributes = members_of(data[begin:end])
        copy_of: dict[int, int] = {}
        # The cost of an object depends on its own members alone.
        for key in sorted(name for name in attributes if name in keys):
            value = track_value(attributes[key])
            if value is None:
                continue
            found, number = hash_of(key, value), numbers.setdefault(key, len(numbers))
            copy = copy_of.setdefault(found % slots, len(rows))
            if copy == len(rows):
                rows.append(row)
                members.append(number)
                values.append(found)
            else:
                copies.append(copy)
                tracks.append(number + 1)
                others.append(found)
    if not rows:
        return None
    return Followed(
        tuple(numbers),
        np.array(rows, np.int64),
        np.array(members, np.uint32),
        np.array(values, np.uint64),
        _further(copies, tracks, others) if copies else None,
    )


def _further(rows: array[int], tracks: array[int], values: array[int]) -> FurtherValues:
    order = np.argsort(np.array(rows, np.int64), kind="stable")
    return FurtherValues(
        np.array(rows, np.int64)[order],
        np.array(tracks, np.uint32)[order],
        np.array(values, np.uint64)[order],
    )


def copies_max(objects: ObjectColumns, slots: int) -> NDArray[np.int64]:
    """Returns i8[n], an upper bound of each object's copies, without parsing its attributes."""
    before = np.concatenate([[0], np.cumsum(objects.attributes == ord(":"))])
    members = np.diff(before[objects.attribute_offsets])
    return np.minimum(members, slots)
