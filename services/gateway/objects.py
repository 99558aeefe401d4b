"""`POST /v1/objects`: publishes the objects of a body."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import Query, Request, Response
from sirocco_api.v1.columns_pb2 import ObjectColumns as ObjectsMessage

from sirocco.codec.columns import put_objects
from sirocco.formats.column_map import read_map
from sirocco.services.gateway.front import Front
from sirocco.services.gateway.object_formats import (
    media_type_of,
    memory_factor,
    read_body,
    unpacked_bytes,
)

# Smaller bodies are read on the loop: handing them to a thread and back takes longer. Lines of two
# bytes that are no objects cost 20 us each.
_INLINE_BYTES = 1 << 13


class Objects:
    """Publishes objects for the clients of a gateway."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def publish(
        self,
        request: Request,
        columns: Annotated[
            str | None,
            Query(
                alias="map", description="of a table: `lon=COLUMN,lat=COLUMN,text=A+B,ts=COLUMN`"
            ),
        ] = None,
    ) -> Response:
        """Publishes the objects of a body, and answers when the log has them.

        Bad lines are reported in `errors`; all others are published. A body that is refused as a
        whole publishes nothing.
        """
        front, limits = self._front, self._front.limits
        media_type = media_type_of(request.headers.get("content-type", ""))
        chosen = {} if columns is None else read_map(columns)
        factor, unpacked = memory_factor(media_type), unpacked_bytes(media_type, limits)
        async with (
            front.call(request) as (caller, connected),
            front.bodies.whole(request, caller, limits.body_bytes, factor) as body,
            front.bodies.held(caller, unpacked),
        ):
            front.metrics.body_bytes.inc(len(body))
            work = partial(read_body, body, media_type, limits, chosen)
            is_small = len(body) <= _INLINE_BYTES and not unpacked
            read = work() if is_small else await front.work(caller, work)
            errors: list[tuple[int, Any]] = list(read.bad)
            bad = read.bad_count
            count, position = len(read.lines), ""
            if count:
                message = ObjectsMessage()
                put_objects(message, read.objects)
                receipt = await connected.publisher.publish(message)
                errors += [(read.lines[row], error) for row, error in receipt.rejected]
                bad += len(receipt.rejected)
                count, position = count - len(receipt.rejected), receipt.position
        front.metrics.objects.inc(count)
        front.metrics.bad_lines.inc(bad)
        return _answer(count, position, errors, bad, limits.errors)


def _answer(
    count: int, position: str, errors: Iterable[tuple[int, Any]], bad: int, errors_max: int
) -> Response:
    """Returns the answer; errors are in the order of lines, and no more than the bound.

    Args:
        count: Objects that the log has.
        position: Of them.
        errors: Of the first bad lines.
        bad: How many bad lines there are.
        errors_max: How many errors are shown.
    """
    found = sorted(errors, key=lambda pair: pair[0])
    members: dict[str, Any] = {
        "acknowledged": count,
        "position": position,
        "errors": [_shown(line, error) for line, error in found[:errors_max]],
    }
    if bad > errors_max:
        members["more_errors"] = bad - errors_max
    return Response(orjson.dumps(members), media_type="application/json")


def _shown(line: int, error: Any) -> dict[str, Any]:
    return {"line": line, "field": error.field, "detail": error.message}
