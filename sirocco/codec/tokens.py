"""The position token of publishes: the reached intake positions, as text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sirocco.model.errors import InvalidArgument

# Largest offset in a position, see `protocol/contract/positions.py`.
OFFSET_MAX = (1 << 43) - 1

# Characters of a token; a part takes at most 22, and clients may join several tokens. Eight
# megabytes of parts would take three seconds of a loop that serves all clients.
TOKEN_LENGTH_MAX = 16_384
PART_LENGTH_MAX = 22

# Partition and offset, as written below: `int` would accept more forms.
_PART = re.compile("([0-9]{1,10})[.]([0-9]{1,19})")


def read_position_token(token: str, partitions: int) -> dict[int, int]:
    """Returns intake partition → offset of the last record; nothing for an empty token.

    Args:
        token: from the answer to a publish.
        partitions: Kafka partitions of the intake.

    Raises:
        InvalidArgument: it is not a token of this cluster.
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
    """Returns the token of intake partition → offset of the last record; each partition once."""
    return ",".join(f"{partition}.{offset}" for partition, offset in positions.items())
