"""A publishing session, with a simulated server log: breaks, lost and partial answers.

The oracle is the promise itself: every object is in the log exactly once and in order, or was
reported as refused exactly once.
"""

from __future__ import annotations

import random

import pytest
from sirocco_api.v1.errors_pb2 import Error
from sirocco_api.v1.publish_service_pb2 import PublishRequest, Rejection
from sirocco_client.errors import Internal
from sirocco_client.objects.columns import object_id
from sirocco_client.publishing.session import PublishSession

from tests.support.fake_cluster import fill_objects
from tests.support.seeds import drawn_seed


def request_of(ids: list[int | str]) -> PublishRequest:
    request = PublishRequest()
    fill_objects(request.objects, ids)
    return request


class Server:
    """Takes requests in order, each number once; a break loses its pending answers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: list[int | str] = []
        self.last = 0

    def take(self, request: PublishRequest) -> tuple[int, list[Rejection]]:
        assert request.first_number <= self.last + 1, "a gap"
        assert request.acknowledged_to < request.first_number
        rejections = []
        for row in range(request.objects.count):
            number, found = request.first_number + row, object_id(request.objects, row)
            if is_bad(found):
                rejections.append(Rejection(number=number, error=Error(code="INVALID_ARGUMENT")))
            if number > self.last and not is_bad(found):
                self.log.append(found)
        self.last = max(self.last, request.first_number + request.objects.count - 1)
        return request.first_number + request.objects.count - 1, rejections


def is_bad(found: int | str) -> bool:
    return isinstance(found, int) and found % 7 == 3


@pytest.mark.parametrize("repeat", range(20))
def test_every_object_once_whatever_breaks(repeat: int) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    server, session = Server(rng), PublishSession(99)
    wanted: list[int | str] = [i if rng.random() < 0.7 else f"n{i}" for i in range(300)]
    todo, refused = list(wanted), []
    answers: list[tuple[int, list[Rejection]]] = []
    while todo or session.outstanding:
        step = rng.random()
        if step < 0.4 and todo:
            count = rng.randrange(1, 12)
            session.add(request_of(todo[:count]))
            del todo[:count]
        elif step < 0.7:
            request = session.next_request()
            if request is not None:
                answers.append(server.take(request))
        elif step < 0.95 and answers:
            end, rejections = answers.pop(0)
            if rng.random() < 0.3:
                # A server may answer a part, and may report refused objects before that.
                part = rng.randrange(session.acknowledged_to, end + 1)
                refused += session.acknowledge(part, rejections)
            refused += session.acknowledge(end, rejections)
            if rng.random() < 0.2:
                assert session.acknowledge(end, rejections) == []
        elif step > 0.95:
            answers.clear()
            session.rewind()
        assert session.outstanding <= 300
    assert server.log == [each for each in wanted if not is_bad(each)], f"seed {seed}"
    received = [(each.number, each.object) for each in refused]
    assert received == [(i, e) for i, e in enumerate(wanted, 1) if is_bad(e)], f"seed {seed}"
    assert session.outstanding_bytes == 0, f"seed {seed}"


def test_a_partly_acknowledged_batch_is_cut_when_it_is_sent_again() -> None:
    session = PublishSession(1)
    session.add(request_of([10, "eleven", 12, 13]))
    first = session.next_request()
    assert first is not None
    assert session.acknowledge(2, []) == []
    session.rewind()
    again = session.next_request()
    assert again is not None
    assert (again.first_number, again.acknowledged_to, again.objects.count) == (3, 2, 2)
    assert [object_id(again.objects, row) for row in (0, 1)] == [12, 13]
    assert session.next_request() is None


def test_an_answer_may_come_before_the_resend() -> None:
    session = PublishSession(1)
    for i in range(3):
        session.add(request_of([i]))
    session.next_request()
    session.next_request()
    session.rewind()
    session.acknowledge(2, [])
    rest = session.next_request()
    assert rest is not None
    assert rest.first_number == 3


def test_answers_that_break_the_contract_are_refused() -> None:
    session = PublishSession(1)
    session.add(request_of([1, 2]))
    session.next_request()
    with pytest.raises(Internal, match="acknowledged number 3"):
        session.acknowledge(3, [])
    assert session.acknowledged_to == 0
    # A number that was never assigned, and one that was.
    refused = session.acknowledge(2, [Rejection(number=9), Rejection(number=1)])
    assert [(each.number, each.object) for each in refused] == [(1, 1)]
