"""The fate of an append of the front that the log rejects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sirocco.model import errors as model
from sirocco.protocol.contract.messages import INTAKE, NO_OBJECTS, IntakeObjects
from sirocco.runtime.loop.appender import RETRY_AFTER_MS, Appender
from sirocco.transport.errors import (
    AppendFailed,
    Closed,
    FencedError,
    LogFull,
    RecordTooLarge,
)
from sirocco.transport.log import TopicSpec
from sirocco.transport.memory_log import MemoryLog, MemoryProducer

TIME = IntakeObjects(
    session=0,
    first_number=1,
    span=0,
    acknowledged_to=0,
    received_ms=7,
    objects=NO_OBJECTS,
    number_deltas=None,
)


class Refusing(MemoryLog):
    """A log whose producers refuse appends while a reason is set."""

    def __init__(self) -> None:
        super().__init__()
        self.create_topics([TopicSpec(INTAKE, 1)])
        self.reason: Exception | None = None
        self.waits_s: list[float] = []

    def producer(self, name: str, **options: Any) -> MemoryProducer:
        self.waits_s.append(options["append_wait_s"])
        made = super().producer(name, **options)
        append: Callable[..., None] = made.append

        def refuse(*arguments: Any, **more: Any) -> None:
            if self.reason is not None:
                raise self.reason
            append(*arguments, **more)

        made.append = refuse  # type: ignore[method-assign]
        return made


@pytest.mark.parametrize(
    ("reason", "expected", "is_over"),
    [
        (LogFull("full"), model.ResourceExhausted, False),
        (RecordTooLarge("t", 2, 1), model.InvalidArgument, False),
        (AppendFailed("refused before"), model.Unavailable, True),
        (FencedError("another one"), model.Unavailable, True),
        (Closed("closed"), Closed, False),
        (MemoryError(), MemoryError, False),
    ],
)
def test_nothing_is_left_of_what_was_not_taken(
    reason: Exception, expected: type[Exception], is_over: bool
) -> None:
    async def run() -> None:
        log = Refusing()
        appender = Appender(log, "front", asyncio.get_running_loop())
        log.reason = reason
        with pytest.raises(expected) as caught:
            appender.append(INTAKE, 0, TIME)
        assert appender.failure is (reason if is_over else None)
        assert not appender._futures
        if isinstance(caught.value, model.ResourceExhausted):
            assert caught.value.retry_after_ms == RETRY_AFTER_MS
        log.reason = None
        assert await appender.append(INTAKE, 0, TIME) == 0
        assert not appender._futures
        await asyncio.to_thread(appender.close)
        # A wait for room would block the loop.
        assert log.waits_s == [0.0]

    asyncio.run(run())
