"""Responses to one merger: order, groups, and what becomes of them when the stream breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import pytest

from sirocco.internal_api.v1 import slot_search_service_pb2 as pb
from sirocco.services.evaluator.outgoing_responses import (
    GROUP_BYTES_MAX,
    GROUP_MAX,
    OutgoingResponses,
)


class Stream:
    """A stream that writes when the test lets it."""

    def __init__(self) -> None:
        self.messages: list[pb.SearchSlotsResponse] = []
        self.may_write = asyncio.Event()
        self.broken = 0
        self.fails = False

    async def write(self, message: pb.SearchSlotsResponse) -> None:
        await self.may_write.wait()
        if self.fails:
            raise grpc.aio.UsageError
        self.messages.append(message)

    def break_off(self) -> None:
        self.broken += 1

    def questions(self) -> list[int]:
        return [each.question for message in self.messages for each in (message, *message.others)]


def run(test: Callable[[Stream, OutgoingResponses], Awaitable[None]]) -> None:
    async def inside() -> None:
        stream = Stream()
        await asyncio.wait_for(test(stream, OutgoingResponses(stream.write, stream.break_off)), 30)

    asyncio.run(inside())


@pytest.mark.parametrize("takes_groups", [True, False])
def test_what_waits_goes_in_order_and_in_groups_where_they_are_taken(takes_groups: bool) -> None:
    async def test(stream: Stream, outgoing: OutgoingResponses) -> None:
        outgoing.takes_groups = takes_groups
        for number in range(40):
            outgoing.put(pb.SearchSlotsResponse(question=number))
        stream.may_write.set()
        await outgoing.sent(pb.SearchSlotsResponse(question=40))
        assert stream.questions() == list(range(41))
        assert len(stream.messages) == (1 if takes_groups else 41)
        # A merger learns from any answer that its own requests may come in groups.
        assert all(message.takes_groups for message in stream.messages)

    run(test)


def test_groups_are_bounded_in_bytes_and_number() -> None:
    async def test(stream: Stream, outgoing: OutgoingResponses) -> None:
        outgoing.takes_groups = True
        large = bytes(GROUP_BYTES_MAX // 3)
        for number in range(10):
            outgoing.put(pb.SearchSlotsResponse(question=number, distances_m=large))
        for number in range(10, 10 + 2 * GROUP_MAX):
            outgoing.put(pb.SearchSlotsResponse(question=number))
        stream.may_write.set()
        await outgoing.sent(pb.SearchSlotsResponse(question=10 + 2 * GROUP_MAX))
        assert stream.questions() == list(range(11 + 2 * GROUP_MAX))
        for message in stream.messages:
            assert message.ByteSize() < GROUP_BYTES_MAX + 64 * GROUP_MAX
            assert len(message.others) <= GROUP_MAX
        assert len(stream.messages) < 10

    run(test)


def test_who_waits_for_a_broken_stream_goes_on() -> None:
    async def test(stream: Stream, outgoing: OutgoingResponses) -> None:
        stream.fails = True
        waiting = [
            asyncio.create_task(outgoing.sent(pb.SearchSlotsResponse(question=number)))
            for number in range(3)
        ]
        await asyncio.sleep(0)
        stream.may_write.set()
        _, left = await asyncio.wait(waiting, timeout=120.0)
        assert not left
        assert stream.broken == 1
        # Nothing is kept for a merger that is gone.
        await outgoing.sent(pb.SearchSlotsResponse(question=9))
        assert stream.messages == []

    run(test)
