"""How long publishers wait for acknowledgements; the same for all of them."""

from __future__ import annotations

from typing import Protocol

from sirocco_client.errors import DeadlineExceeded, FailedPrecondition

# How long `close` waits for acknowledgements by default. `Retry` tries a server that is down for
# about as long.
CLOSE_TIMEOUT_S = 60.0

# How long a finished stream may take to end before it is cancelled.
END_TIMEOUT_S = 1.0


class Flushed(Protocol):
    """The state of a publisher, as a flush sees it; see `Outbox`."""

    def check(self) -> None:
        """Raises PublishFailed if the publisher has failed."""

    def missing(self, wanted: int) -> str:
        """Describes what is not acknowledged yet, up to a number."""


def flush_wait_s(
    outbox: Flushed, wanted: int, deadline_s: float | None, now_s: float, *, is_closed: bool
) -> float | None:
    """Returns how long a flush may wait for the next answer, seconds; None: without a limit.

    Args:
        outbox: Lacks acknowledgements.
        wanted: The last number to be acknowledged.
        deadline_s: When the flush gives up; None: never.
        now_s: The time, seconds.
        is_closed: Whether the publisher is closed.

    Raises:
        PublishFailed: The publisher gave up.
        FailedPrecondition: The publisher is closed.
        DeadlineExceeded: The time is over.
    """
    outbox.check()
    if is_closed:
        raise FailedPrecondition("the publisher is closed")
    if deadline_s is None:
        return None
    if deadline_s <= now_s:
        raise DeadlineExceeded(outbox.missing(wanted))
    return deadline_s - now_s
