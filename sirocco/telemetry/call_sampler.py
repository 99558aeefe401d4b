"""Which calls are traced: a share of those without a context, and no more than some a second."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from sirocco.telemetry.trace_context import TraceContext


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """What a process traces, and where to.

    Attributes:
        endpoint: of an OTLP collector (gRPC), http://HOST:PORT or https://…; empty: no tracing.
        ratio: share of calls without a context of their own that begin a trace.
        calls_per_s: at most so many calls a second are traced, whatever clients ask for.
    """

    endpoint: str = ""
    ratio: float = 0.01
    calls_per_s: int = 10


TRACES = TraceSettings()


class CallSampler:
    """Decides for each call of clients; for one thread.

    A context of the client's decides, as its flag says whether the trace is recorded. A bucket of
    tokens, which holds those of one second, bounds all: so no client can force more.

    Args:
        settings: share and rate.
        draw: a number in [0, 1).
        now_s: monotonic time, seconds.
    """

    def __init__(
        self,
        settings: TraceSettings,
        draw: Callable[[], float] = random.random,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._draw = draw
        self._now_s = now_s
        self._tokens = float(settings.calls_per_s)
        self._filled_s = now_s()

    def takes(self, asked: TraceContext | None) -> bool:
        """Whether a call is traced; `asked`: its context, if it came with one."""
        if asked is None:
            wanted = self._settings.ratio > 0 and self._draw() < self._settings.ratio
        else:
            wanted = asked.is_sampled
        return wanted and self._take_token()

    def _take_token(self) -> bool:
        now_s, per_s = self._now_s(), self._settings.calls_per_s
        self._tokens = min(per_s, self._tokens + (now_s - self._filled_s) * per_s)
        self._filled_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
