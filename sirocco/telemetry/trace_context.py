"""Places in traces as W3C Trace Context writes them: `traceparent` and `tracestate`.

https://www.w3.org/TR/trace-context/. What a client sends has to follow the grammar and its
bounds exactly; anything else is ignored, as the specification asks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# A later version than 00 may append fields; as much of it is looked at.
TRACEPARENT_LENGTH_MAX = 128

# What the specification asks everybody to pass on, and the greatest number of members.
TRACESTATE_LENGTH_MAX = 512
TRACESTATE_MEMBERS_MAX = 32

_TRACEPARENT = re.compile(
    "([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?", re.ASCII
)
_KEY = "[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13}"
_MEMBER = re.compile(f"(?:{_KEY})=[ -+\\--<>-~]{{0,255}}[!-+\\--<>-~]", re.ASCII)


class TraceContext(NamedTuple):
    """One span of a trace, as the parent of others.

    Attributes:
        trace_id: 128 bits, not 0.
        span_id: 64 bits, not 0.
        is_sampled: whether its trace is recorded.
        state: a valid `tracestate`; may be empty.
    """

    trace_id: int
    span_id: int
    is_sampled: bool = True
    state: str = ""

    @property
    def traceparent(self) -> str:
        """The header of this name."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"


def read_context(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """Returns what two headers say; None if the first is not valid, which voids the second."""
    if len(traceparent) > TRACEPARENT_LENGTH_MAX:
        return None
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    version, trace_id, span_id = found[1], int(found[2], 16), int(found[3], 16)
    if version == "ff" or (version == "00" and found[5]) or not trace_id or not span_id:
        return None
    is_sampled = bool(int(found[4], 16) & 1)
    return TraceContext(trace_id, span_id, is_sampled, _read_state(tracestate))


def _read_state(tracestate: str) -> str:
    """Returns a `tracestate` that is valid as a whole, else an empty one."""
    if not tracestate or len(tracestate) > TRACESTATE_LENGTH_MAX:
        return ""
    members = [each.strip(" \t") for each in tracestate.split(",")]
    members = [each for each in members if each]
    keys = {each.partition("=")[0] for each in members}
    if len(members) > TRACESTATE_MEMBERS_MAX or len(keys) < len(members):
        return ""
    return ",".join(members) if all(map(_MEMBER.fullmatch, members)) else ""
