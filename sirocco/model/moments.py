"""Moments as people write them: epoch ms, or ISO 8601 with a zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sirocco.model.errors import InvalidArgument
from sirocco.model.members import shown

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# The longest have nanoseconds and a zone with seconds.
_CHARACTERS_MAX = 48


def moment_ms(text: str, field: str) -> int:
    """Returns the epoch ms of a moment in ISO 8601, such as `2026-11-26T09:30:00+01:00`.

    Fractions of a millisecond are cut off.

    Raises:
        InvalidArgument: It is none, or it has no zone: then it could be any of 26 hours.
    """
    try:
        if len(text) > _CHARACTERS_MAX:
            raise ValueError
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"{shown(text)} is neither epoch ms nor a time of ISO 8601", field=field
        ) from None
    if moment.tzinfo is None:
        raise InvalidArgument(f"{shown(text)} has no zone, such as Z or +01:00", field=field)
    return (moment - _EPOCH) // _MILLISECOND
