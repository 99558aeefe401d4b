"""Reads and checks the queries that clients register or update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sirocco_api.v1 import query_service_pb2 as pb
from sirocco_api.v1.query_pb2 import Query

from sirocco.codec.arrays import check_time
from sirocco.codec.queries import is_light, read_query
from sirocco.model.access import Grant
from sirocco.model.durations import format_duration
from sirocco.model.errors import InvalidArgument, OutOfRange
from sirocco.model.hints.warnings import warnings_of
from sirocco.model.query import Query as AnyQuery
from sirocco.model.query import RangeQuery, RankedQuery, TermsQuery
from sirocco.protocol.contract.effects import ChangeRequest
from sirocco.protocol.contract.messages import NEVER_MS, NO_PAST
from sirocco.protocol.contract.record_sizes import check_change
from sirocco.protocol.contract.storeless_limits import check_standing
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.runtime.process.clock import now_ms

# Each step of a query is a search in every slot and a list for its subscriber, and notifications
# arrive 50 to 200 ms after their events: at 1 ms a hundred queries would take a core.
STEP_MS_MIN = 100

# Of one query, between its begin and its registration: a slot reports them all before its next
# object, some 8,000 a second if they are empty.
STEPS_BEHIND_MAX = 10_000

# A change, and warnings about its query.
Checked: TypeAlias = tuple[ChangeRequest, tuple[str, ...]]

# Requests that name a lifetime.
Registering: TypeAlias = (
    pb.RegisterQueryRequest
    | pb.UpdateQueryRequest
    | pb.RegisterQueriesRequest
    | pb.UpdateQueriesRequest
)


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When queries begin, and how far back they are answered.

    Attributes:
        start_ms: when they begin, epoch ms.
        past_ms: also answer from stored objects of this age; `NO_PAST` for none.
        is_start_given: whether the client named the start. If it did not, the start is this
            router's clock, which does not relate to objects: the clock that stamps them may be
            behind, or use their own times.
    """

    start_ms: int
    past_ms: int
    is_start_given: bool


class QueryChecks:
    """Turns messages into changes that owners can apply.

    Args:
        pool: where expressions that may take long are read.
        retention_ms: how long objects are kept in memory; None where files are replayed.
        store: whether the cluster keeps objects.
    """

    def __init__(self, pool: WorkPool, retention_ms: int | None, *, store: bool) -> None:
        self._pool = pool
        self._retention_ms = retention_ms
        self._store = store

    async def read(self, action: str, query: Query, lifetime: Lifetime, grant: Grant) -> Checked:
        """Returns as `checked`; a query that may take long is read in a thread."""
        if is_light(query):
            return self.checked(action, query, lifetime, grant)
        return await self._pool.run(lambda: self.checked(action, query, lifetime, grant))

    def checked(self, action: str, query: Query, lifetime: Lifetime, grant: Grant) -> Checked:
        """Returns the change that is asked for, and warnings about its query."""
        past_ms = lifetime.past_ms
        if grant.tenant:
            # Before the checks: limits on names apply to the names in the registry.
            query.id = grant.inward(query.id)
            query.subscriber = grant.inward(query.subscriber)
        parsed, subscriber = read_query(query)
        if parsed.mode != "continuous":
            raise InvalidArgument("a snapshot is asked by search, not registered", field="mode")
        check_change(parsed, subscriber)
        if not self._store:
            check_standing(parsed, past_ms)
        if past_ms != NO_PAST and isinstance(parsed, RangeQuery) and parsed.track is not None:
            raise InvalidArgument(
                "values are followed from the registration on: `track` has no past", field="past_ms"
            )
        if isinstance(parsed, TermsQuery | RankedQuery):
            self._check_kept(parsed)
            self._check_step(parsed)
            if lifetime.is_start_given:
                self._check_begin(parsed, lifetime.start_ms)
        change = ChangeRequest(
            action=action,
            id=parsed.id,
            query=parsed,
            subscriber=subscriber,
            start_ms=lifetime.start_ms,
            past_ms=past_ms,
            is_start_given=lifetime.is_start_given,
        )
        return change, warnings_of(parsed)

    def _check_kept(self, query: TermsQuery | RankedQuery) -> None:
        """Refuses steps that would count objects no longer in memory."""
        retention_ms = self._retention_ms
        if retention_ms is None or (query.window_ms or NEVER_MS) <= retention_ms:
            return
        raise OutOfRange(
            f"steps count objects in memory, which are kept for {format_duration(retention_ms)}; "
            "ask for a window of at most that",
            field="window",
            earliest_ms=now_ms() - retention_ms,
        )

    def _check_step(self, query: TermsQuery | RankedQuery) -> None:
        """Refuses steps too frequent for a live cluster; a replay of files evaluates any."""
        assert query.step_ms is not None
        if self._retention_ms is not None and query.step_ms < STEP_MS_MIN:
            raise InvalidArgument(
                f"{format_duration(query.step_ms)} is less than {format_duration(STEP_MS_MIN)}",
                field="step",
            )

    def _check_begin(self, query: TermsQuery | RankedQuery, start_ms: int) -> None:
        """Refuses a begin so long ago that its steps would hold up everybody's objects."""
        behind = steps_behind(query, start_ms)
        if self._retention_ms is not None and behind > STEPS_BEHIND_MAX:
            raise InvalidArgument(
                f"{behind} steps would be due at once, the limit is {STEPS_BEHIND_MAX}: begin "
                "later; with `past` the first step counts what came before",
                field="start_ms",
            )


def steps_behind(query: AnyQuery, start_ms: int) -> int:
    """Returns how many steps of a query are due by now, by this process's clock."""
    if not isinstance(query, TermsQuery | RankedQuery) or query.step_ms is None:
        return 0
    end_ms = now_ms() if query.ttl_ms is None else min(now_ms(), start_ms + query.ttl_ms)
    return max((end_ms - start_ms) // query.step_ms, 0)


def lifetime_of(request: Registering) -> Lifetime:
    """Returns the lifetime that a request names; without a start, it begins now.

    Raises:
        InvalidArgument: A time is out of range, or the past is negative.
    """
    past_ms = request.past_ms if request.HasField("past_ms") else NO_PAST
    if past_ms < 0 and request.HasField("past_ms"):
        raise InvalidArgument("must not be negative", field="past_ms")
    if not request.HasField("start_ms"):
        return Lifetime(now_ms(), past_ms, False)
    check_time(request.start_ms, "start_ms")
    return Lifetime(request.start_ms, past_ms, True)
