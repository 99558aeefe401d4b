"""Errors of a sink: it cannot continue at all, or not now."""

from __future__ import annotations

from typing import Literal, TypeAlias

from sirocco.model.errors import SiroccoError

# gone: the receiver answered 410. elsewhere: another instance does the work. refused: the cluster
# or the target does not accept it, whatever the time.
StopReason: TypeAlias = Literal["gone", "elsewhere", "refused"]


class SinkStopped(SiroccoError):  # noqa: N818 - named as the other errors are
    """The sink cannot continue until its configuration, or what it writes to, is changed.

    Attributes:
        reason: The kind of end; stable.
    """

    code = "FAILED_PRECONDITION"

    def __init__(self, reason: StopReason, message: str) -> None:
        super().__init__(message)
        self.reason: StopReason = reason


class TargetUnavailable(SiroccoError):  # noqa: N818
    """The target cannot be reached, or failed; the same may succeed later.

    Attributes:
        reason: What failed, one word, for metrics.
    """

    code = "UNAVAILABLE"
    retryable = True

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
