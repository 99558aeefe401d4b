"""The times of a router's front."""

from __future__ import annotations

from dataclasses import dataclass

from sirocco.runtime.grpc.edge import REQUEST_S


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontTimes:
    """How long a front waits, and how often it checks.

    Attributes:
        begin_s: how long the first request of a stream may take to arrive.
        seek_s: how long a change looks for its owner: longer than a take-over (10 s), shorter than
            a client's usual deadline of a minute.
        held_up_ms_max: a publisher that is slightly too fast is slowed down; if that is not enough
            within this time, it is refused. Shorter than the SDK's time limit of a call.
        changes_held_up_ms_max: the same for changes of queries of a tenant that appends more than
            its rate to slots: with the search for an owner less than a client's usual deadline.
        counted_ms: between looks at the number of a tenant's queries.
        counted_at_limit_ms: the same for a tenant at its limit.
        tidy_ms: between clean-ups at which an owner forgets removed queries.
    """

    begin_s: float = REQUEST_S
    seek_s: float = 30.0
    held_up_ms_max: int = 5_000
    changes_held_up_ms_max: int = 20_000
    counted_ms: int = 2_000
    counted_at_limit_ms: int = 200
    tidy_ms: int = 10_000


TIMES = FrontTimes()
