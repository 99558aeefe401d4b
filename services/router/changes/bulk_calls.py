"""Bulk calls: a few requests of one stream in progress at once, and their responses in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from sirocco_api.v1 import query_service_pb2 as pb

from sirocco.codec.errors import write_error
from sirocco.codec.registration_results import write_results
from sirocco.codec.wire import QUERIES_MAX
from sirocco.model.errors import InvalidArgument, SiroccoError
from sirocco.protocol.contract.effects import Outcome, Outcomes
from sirocco.protocol.contract.messages import NO_REVISION
from sirocco.runtime.grpc.edge import from_start

# Bulk requests of one stream in progress; the stream is not read further meanwhile.
IN_FLIGHT_MAX = 4

Request = TypeVar("Request")
Response = TypeVar(
    "Response",
    pb.RegisterQueriesResponse,
    pb.UpdateQueriesResponse,
    pb.UnregisterQueriesResponse,
)


@dataclass(frozen=True, slots=True)
class BulkAnswer:
    """The answer to one request of a bulk call.

    Attributes:
        outcomes: of each row.
        warnings: of the rows that have any.
    """

    outcomes: Sequence[Outcome]
    warnings: Mapping[int, Sequence[str]]

    def errors(self) -> dict[int, SiroccoError]:
        """Returns the errors of the rows that have one."""
        if isinstance(self.outcomes, Outcomes):
            return dict(self.outcomes.errors)
        return {row: each.error for row, each in enumerate(self.outcomes) if each.error is not None}


_Decision: TypeAlias = asyncio.Future[BulkAnswer]


async def answered(
    requests: AsyncIterator[Request],
    decide: Callable[[Request], Awaitable[BulkAnswer]],
    begin_s: float,
) -> AsyncGenerator[BulkAnswer]:
    """Yields the answers to the requests of a bulk call; a few are in progress at once."""
    under_way: asyncio.Queue[_Decision | None] = asyncio.Queue(IN_FLIGHT_MAX)
    begun: set[_Decision] = set()

    async def read() -> None:
        try:
            async for request in from_start(requests, begin_s):
                task = asyncio.ensure_future(decide(request))
                # An idle stream keeps nothing of its last request.
                del request
                begun.add(task)
                task.add_done_callback(begun.discard)
                await under_way.put(task)
                del task
        finally:
            await under_way.put(None)

    reading = asyncio.create_task(read())
    try:
        while (task := await under_way.get()) is not None:
            yield await task
        await reading
    finally:
        # Requests of a disconnected client are not applied any more.
        reading.cancel()
        for task in begun:
            task.cancel()
        while not under_way.empty():
            under_way.get_nowait()  # `read` ends by adding an item


def written_results(response: type[Response], outcomes: Sequence[Outcome]) -> Response:
    """Returns a response with the results of a bulk change."""
    if isinstance(outcomes, Outcomes) and not outcomes.errors:
        revisions = outcomes.revisions
        # A removal that a former owner has done has no revision.
        if (revisions != NO_REVISION).all():
            return response.FromString(write_results(revisions))
    results = [
        pb.RegistrationResult(revision=each.revision)
        if each.error is None
        else pb.RegistrationResult(revision=each.revision, error=write_error(each.error))
        for each in outcomes
    ]
    return response(results=results)


def check_count(count: int, field: str) -> None:
    """Refuses a request of too many queries."""
    if count > QUERIES_MAX:
        raise InvalidArgument(f"{count} queries in a request, at most {QUERIES_MAX}", field=field)
