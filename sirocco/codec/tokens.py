"""The position token of publishes: how far the intake had come, as text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sirocco.model.errors import InvalidArgument

# What a position has room for, see `protocol/positions.py`.
OFFSET_MAX = (1 << 43) - 1

# Characters of a token; a part takes 22 at most, and clients may join some tokens. Eight megabytes
# of parts are three seconds of a loop that serves everybody.
TOKEN_LENGTH_MAX = 16_384
PART_LENGTH_MAX = 22

# Partition and offset, as they are written below: `int` reads more than that.
_PART = re.compile("([0-9]{1,10})[.]([0-9]{1,19})")


def read_position_token(token: str, partitions: int) -> dict[int, int]:
    """Intake partition → offset of the last record; nothing of an empty token.

    Args:
        token: as a publish was answered.
        partitions: Kafka partitions of the intake.

    Raises:
        InvalidArgument: it is no token of this cluster.
    """
    if len(token) > max(TOKEN_LENGTH_MAX, PART_LENGTH_MAX * partitions):
        raise InvalidArgument(f"has {len(token)} characters, no token does", field="position_token")
    positions: dict[int, int] = {}
    for part in token.split(",") if token else ():
        found = _PART.fullmatch(part)
        if found is None:
            raise InvalidArgument("is no token", field="position_token")
        partition, offset = int(found[1]), int(found[2])
        if not (partition < partitions and offset <= OFFSET_MAX):
            raise InvalidArgument("is a token of another cluster", field="position_token")
        positions[partition] = max(offset, positions.get(partition, 0))
    return positions


def write_position_token(positions: Mapping[int, int]) -> str:
    """The token of intake partition → offset of the last record; each partition once."""
    return ",".join(f"{partition}.{offset}" for partition, offset in positions.items())
