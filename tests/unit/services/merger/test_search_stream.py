"""A stream of searches beside a cluster: one that fails in no foreseen way fails alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from sirocco_api.v1 import search_service_pb2 as pb

from sirocco.model.errors import InvalidArgument
from sirocco.protocol.search.limits import LIMITS
from sirocco.services.merger.search_stream import Begun, SearchStream


class Front:
    """Begins no search: the first fails unexpectedly, all others are refused."""

    def __init__(self) -> None:
        self.errors: list[Exception] = [ValueError("a defect")]

    def is_ready_for(self, request: pb.SearchRequest) -> bool:
        return True

    def begun_now(self, *_: Any) -> Begun:
        raise self.errors.pop() if self.errors else InvalidArgument("is wrong", field="text")

    async def begun(self, *_: Any) -> Begun:
        return self.begun_now()

    def place(self) -> AbstractContextManager[None]:
        return nullcontext()

    def check(self) -> None:
        """Opens the stream to everybody."""


def test_a_search_that_fails_unexpectedly_ends_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Its stream waited for it for ever."""

    def request(*numbers: int) -> pb.SearchManyRequest:
        return pb.SearchManyRequest(searches=[pb.NumberedSearch(number=n) for n in numbers])

    async def others() -> AsyncIterator[pb.SearchManyRequest]:
        yield request(3)

    async def answered() -> dict[int, str]:
        stream = SearchStream(Front(), lambda: None, LIMITS)
        return {
            each.number: each.error.code
            async for message in stream.responses(request(1, 2), others())
            for each in message.responses
        }

    async def run() -> dict[int, str]:
        answers = asyncio.ensure_future(answered())
        for _ in range(1_000):
            await asyncio.sleep(0)
        if not answers.done():
            answers.cancel()
            pytest.fail("the stream waits")
        return answers.result()

    assert asyncio.run(run()) == {1: "INTERNAL", 2: "INVALID_ARGUMENT", 3: "INVALID_ARGUMENT"}
    assert "search failed" in caplog.text
