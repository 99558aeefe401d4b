"""Proposed maps in quick succession: one is checked at a time, and no other waits."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pytest
from sirocco_api.v1 import map_service_pb2 as pb

from sirocco.model.errors import InvalidArgument
from sirocco.protocol.contract.effects import Outcome
from sirocco.services.coordinator import maps
from sirocco.services.coordinator.maps import MapBack
from tests.support.waiting import until

# Far longer than any of this takes.
TIMEOUT_S = 120.0


class Leader:
    """A coordinator's worker that accepts every map."""

    def __init__(self) -> None:
        self.proposed: list[bytes] = []

    def propose(self, partition_map: bytes) -> Future[tuple[Outcome, ...]]:
        self.proposed.append(partition_map)
        done: Future[tuple[Outcome, ...]] = Future()
        done.set_result((Outcome(len(self.proposed)),))
        return done


class Context:
    """A call that keeps the status with which it ended."""

    def __init__(self) -> None:
        self.code = ""

    async def abort(self, code: Any, *_: object) -> None:
        self.code = code.name
        raise asyncio.CancelledError

    def set_trailing_metadata(self, *_: object) -> None:
        pass


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, list[bytes]]:
    """Returns the event for which the check of a map waits, and the maps that were checked."""
    may_end, checked = threading.Event(), list[bytes]()

    def check(data: bytes) -> None:
        checked.append(data)
        assert may_end.wait(TIMEOUT_S)
        if data == b"bad":
            raise InvalidArgument("is damaged", field="partition_map")

    monkeypatch.setattr(maps, "check_compiled", check)
    return may_end, checked


def propose(front: MapBack, data: bytes) -> tuple[asyncio.Task[Any], Context]:
    context: Any = Context()
    call: Any = front.ProposeMap(pb.ProposeMapRequest(partition_map=data), context)
    return asyncio.create_task(call), context


def test_no_proposal_waits_for_another(checks: tuple[threading.Event, list[bytes]]) -> None:
    may_end, checked = checks
    leader: Any = Leader()

    async def run() -> None:
        front = MapBack(leader)
        first, _ = propose(front, b"first")
        await asyncio.sleep(0)
        others = [propose(front, b"other") for _ in range(50)]
        await asyncio.wait([call for call, _ in others], timeout=TIMEOUT_S)
        assert {context.code for _, context in others} == {"FAILED_PRECONDITION"}
        assert not first.done()
        may_end.set()
        assert (await first).map_version == 1
        # The next one is accepted, also after a refused one.
        bad, context = propose(front, b"bad")
        await asyncio.wait([bad], timeout=TIMEOUT_S)
        assert context.code == "INVALID_ARGUMENT"
        last, _ = propose(front, b"last")
        assert (await last).map_version == 2

    asyncio.run(run())
    assert checked == [b"first", b"bad", b"last"]
    assert leader.proposed == [b"first", b"last"]


def test_a_check_whose_caller_has_gone_continues_alone(
    checks: tuple[threading.Event, list[bytes]],
) -> None:
    may_end, checked = checks
    leader: Any = Leader()

    async def run() -> None:
        front = MapBack(leader)
        removed, _ = propose(front, b"gone")
        await until(lambda: checked)
        removed.cancel()
        # The call ends in these turns.
        for _ in range(3):
            await asyncio.sleep(0)
        early, context = propose(front, b"early")
        await asyncio.wait([early], timeout=TIMEOUT_S)
        assert context.code == "FAILED_PRECONDITION"
        may_end.set()
        await asyncio.wait([removed], timeout=TIMEOUT_S)
        last, _ = propose(front, b"last")
        assert (await last).map_version == 1

    asyncio.run(run())
    assert checked == [b"gone", b"last"]
    assert leader.proposed == [b"last"]
