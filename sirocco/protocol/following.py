"""Objects that are followed by the value of a member: copies that go to the value's slot.

A standing query with `track` needs to see every object of a value, wherever it is. So a copy of the
object goes to a slot that follows from member and value alone, beside the one of its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import orjson
import xxhash
from numpy.typing import NDArray

from sirocco.model.attributes import members_of
from sirocco.model.objects import ObjectColumns
from sirocco.protocol.messages import Routed

# Bytes of the copies of one object in one slot, which stand in one record with it; one copy goes
# whatever its size. An object of the longest text is followed by five members a slot, one of 500
# bytes by four thousand.
COPIES_BYTES_MAX = 2 << 20

# The numbers of an object in a record, and what a term takes there.
_OBJECT_BYTES = 128
_TERM_BYTES = 11


class Attributes(Protocol):
    """The attributes of objects."""

    def of(self, row: int) -> dict[str, Any]:
        """Those of one of them."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Copies to be made of a batch of objects; c of them, in the order of the objects.

    Attributes:
        keys: the members by whose values any of them is followed.
        rows: i8[c], of the objects.
        members: u4[c], row of `keys`.
        values: u8[c], hash of member and value.
        left_out: copies that are not made, as a record of a slot would not hold them.
    """

    keys: tuple[str, ...]
    rows: NDArray[np.int64]
    members: NDArray[np.uint32]
    values: NDArray[np.uint64]
    left_out: int = 0

    def mark(self, routed: Routed, order: NDArray[np.intp], objects: int) -> Routed:
        """Says which rows are copies, where `order` took them behind so many objects."""
        tracks = np.concatenate([np.zeros(objects, np.uint32), self.members + np.uint32(1)])
        values = np.concatenate([np.zeros(objects, np.uint64), self.values])
        return replace(
            routed, track_keys=self.keys, tracks=tracks[order], track_values=values[order]
        )


def followed(
    objects: ObjectColumns, keys: Set[str], term_offsets: NDArray[np.int64], slots: int
) -> Followed | None:
    """Finds the objects that have one of the members; None when none has.

    Args:
        objects: n rows.
        keys: the members. Clients choose them and they are never forgotten: what this takes does
            not depend on how many there are.
        term_offsets: i8[n + 1], of the terms of the objects.
        slots: over how many the values are spread.
    """
    if not len(objects.attributes):
        return None
    rows, members, values = [], [], []
    most = _copies_max(objects, term_offsets)
    left_out = 0
    numbers: dict[str, int] = {}
    data, offsets = objects.attributes.tobytes(), objects.attribute_offsets.tolist()
    for row, (begin, end) in enumerate(pairwise(offsets)):
        if begin == end:
            continue
        attributes = members_of(data[begin:end])
        copies: dict[int, int] = {}
        # An object pays for its own members alone.
        for key in sorted(name for name in attributes if name in keys):
            value = track_value(attributes[key])
            if value is None:
                continue
            found = hash_of(key, value)
            slot = found % slots
            if copies.get(slot, 0) >= most[row]:
                left_out += 1
                continue
            copies[slot] = copies.get(slot, 0) + 1
            rows.append(row)
            members.append(numbers.setdefault(key, len(numbers)))
            values.append(found)
    if not rows:
        return None
    return Followed(
        tuple(numbers),
        np.array(rows, np.int64),
        np.array(members, np.uint32),
        np.array(values, np.uint64),
        left_out,
    )


def _copies_max(objects: ObjectColumns, term_offsets: NDArray[np.int64]) -> list[int]:
    """How many copies of each object one slot takes, at least one."""
    sizes = np.diff(objects.text_offsets) + np.diff(objects.attribute_offsets)
    sizes += np.diff(objects.name_offsets) + _TERM_BYTES * np.diff(term_offsets) + _OBJECT_BYTES
    counts: list[int] = np.maximum(COPIES_BYTES_MAX // sizes, 1).tolist()
    return counts


def track_value(value: Any) -> str | int | float | bool | None:
    """The value by which an object is followed; None for what is no value."""
    if isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**64:
        # Numbers compare by value. Whole numbers beyond 64 bits are read as floats, all of them.
        return int(value)
    return value if isinstance(value, str | int | float) else None


def hash_of(key: str, value: str | int | float | bool) -> int:
    """64 bits of member and value, by which the slot of their objects is chosen."""
    return xxhash.xxh3_64_intdigest(orjson.dumps([key, value]))


def identity_of(key: str, value: str | int | float | bool) -> int:
    """64 bits that stand for member and value: of a cryptographic hash (docs/adr/0029)."""
    digest = hashlib.blake2b(orjson.dumps([key, value]), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def identities_of(
    objects: Attributes,
    keys: NDArray[np.uint64],
    names: Mapping[int, str],
    hashes: NDArray[np.uint64],
) -> NDArray[np.uint64]:
    """What stands for the values of copies.

    Args:
        objects: their attributes.
        keys: u8[n], hash of the member for whose value each is here.
        names: of these members.
        hashes: u8[n], `hash_of` the value: what stands for one that is not there.
    """
    found = hashes.copy()
    for row, key in enumerate(keys.tolist()):
        name = names.get(key)
        value = None if name is None else track_value(objects.of(row).get(name))
        if name is not None and value is not None:
            found[row] = identity_of(name, value)
    return found
