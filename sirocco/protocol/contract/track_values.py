"""Values by which tracked objects are followed, and their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import orjson
import xxhash
from numpy.typing import NDArray


class Attributes(Protocol):
    """The attributes of objects."""

    def of(self, row: int) -> dict[str, Any]:
        """Returns the attributes of one object."""


def track_value(value: Any) -> str | int | float | bool | None:
    """Returns the value by which an object is followed; None if it cannot be one."""
    if isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**64:
        # Numbers compare by value. Whole numbers beyond 64 bits are all read as floats.
        return int(value)
    return value if isinstance(value, str | int | float) else None


def hash_of(key: str, value: str | int | float | bool) -> int:
    """Returns 64 bits of member and value, which choose the slot of their objects."""
    return xxhash.xxh3_64_intdigest(orjson.dumps([key, value]))


def identity_of(key: str, value: str | int | float | bool) -> int:
    """Returns 64 bits that identify member and value, of a cryptographic hash (docs/adr/0029)."""
    digest = hashlib.blake2b(orjson.dumps([key, value]), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def identities_of(
    objects: Attributes,
    rows: NDArray[np.intp],
    keys: NDArray[np.uint64],
    names: Mapping[int, str],
    hashes: NDArray[np.uint64],
) -> NDArray[np.uint64]:
    """Returns the identities of the values for which copies are here.

    Args:
        objects: attributes of the copies.
        rows: i8[n], the copy for each value.
        keys: u8[n], hash of the member of each.
        names: of these members.
        hashes: u8[n], `hash_of` the value: used where the value is not among the attributes.
    """
    found = hashes.copy()
    for i, (row, key) in enumerate(zip(rows.tolist(), keys.tolist(), strict=True)):
        name = names.get(key)
        value = None if name is None else track_value(objects.of(row).get(name))
        if name is not None and value is not None:
            found[i] = identity_of(name, value)
    return found
