"""The position token of publishes: how far the intake had come, as text."""

from __future__ import annotations

from sirocco.model.errors import InvalidArgument


def read_position_token(token: str, partitions: int) -> dict[int, int]:
    """Intake partition → offset of the last record; nothing of an empty token.

    Args:
        token: as a publish was answered.
        partitions: Kafka partitions of the intake.

    Raises:
        InvalidArgument: it is no token of this cluster.
    """
    positions: dict[int, int] = {}
    for part in token.split(",") if token else ():
        try:
            partition, offset = (int(number) for number in part.split("."))
        except ValueError:
            raise InvalidArgument("is no token", field="position_token") from None
        if not (0 <= partition < partitions and offset >= 0):
            raise InvalidArgument("is a token of another cluster", field="position_token")
        positions[partition] = offset
    return positions
