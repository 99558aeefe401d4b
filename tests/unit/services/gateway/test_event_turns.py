"""A message with many notifications leaves other requests their turns."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from sirocco_api.v1.receive_service_pb2 import ReceiveResponse
from sirocco_client import NotificationBatch

from sirocco.codec.columns import put_events, put_matches, put_names, put_objects
from sirocco.protocol.contract.positions import position_of
from sirocco.protocol.merger.delivery_records import deliveries
from sirocco.services.gateway.notifications import Position, _Writer
from sirocco.services.gateway.wires import Event
from tests.support.list_records import ListVersion, Match, found_of


def batch_of(count: int) -> NotificationBatch:
    items = [Match(ListVersion(f"q{number}"), 7) for number in range(count)]
    interval, begin = (0, 0, position_of(1), 5), 0
    delivered = next(deliveries([found_of([interval], [(0, begin, each) for each in items])]))
    response = ReceiveResponse(cursor="0.5")
    put_objects(response.objects, delivered.objects)
    put_events(response.events, delivered.events)
    put_names(response.queries, delivered.queries)
    put_matches(response.matches, delivered.matches)
    return NotificationBatch(response, "0.4")


class ReadAtOnce:
    """A wire whose client has read everything at once."""

    def __init__(self) -> None:
        self.written = 0

    async def event(self, event: Event) -> None:
        self.written += 1

    async def flush(self) -> None:
        pass


def test_many_notifications_of_a_message_leave_turns_to_others() -> None:
    async def test() -> list[int]:
        wire: Any = ReadAtOnce()
        front: Any = SimpleNamespace(
            metrics=SimpleNamespace(notifications=SimpleNamespace(inc=lambda count: None))
        )
        opened: Any = SimpleNamespace(cursor="0.4")
        caller: Any = None
        writer = _Writer(front, caller, opened, Position("0.4"), wire)
        writing = asyncio.create_task(writer._write(batch_of(1_000), 0))
        seen = [0]
        while not writing.done():
            await asyncio.sleep(0)
            seen.append(wire.written)
        return seen

    seen = asyncio.run(test())
    assert seen[-1] == 1_000
    assert max(after - before for before, after in pairwise(seen)) <= 64
