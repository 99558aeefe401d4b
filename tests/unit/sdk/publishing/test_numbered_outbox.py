"""Objects with numbers of their own: what is sent, what an answer means, what is sent again."""

from __future__ import annotations

import random
from array import array

import pytest
from sirocco_api.v1.columns_pb2 import ObjectColumns
from sirocco_api.v1.errors_pb2 import Error
from sirocco_api.v1.publish_service_pb2 import (
    PublishNumberedRequest,
    PublishNumberedResponse,
    Rejection,
)
from sirocco_client import PublishFlow
from sirocco_client.errors import Internal, InvalidArgument
from sirocco_client.objects.encode import ObjectEncoder
from sirocco_client.publishing.numbered_outbox import SPAN_MAX, NumberedOutbox

from sirocco.codec.columns import read_objects
from tests.support.seeds import drawn_seed


def columns(*ids: int) -> ObjectColumns:
    encoder, found = ObjectEncoder(), ObjectColumns()
    encoder.add_many([{"id": each, "lon": 1, "lat": 2, "text": "x"} for each in ids], 0)
    encoder.take(found)
    return found


def sent(box: NumberedOutbox) -> list[PublishNumberedRequest]:
    found = []
    while (request := box.next_request(0)) is not None:
        copy = PublishNumberedRequest()
        copy.CopyFrom(request)
        found.append(copy)
    return found


def numbers_of(request: PublishNumberedRequest) -> list[int]:
    deltas = array("I", request.number_deltas).tolist() or range(request.objects.count)
    return [request.first_number + each for each in deltas]


class CountedInt(int):
    """A number that counts its comparisons."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        CountedInt.comparisons += 1
        return int(self) < other

    def __eq__(self, other: object) -> bool:
        CountedInt.comparisons += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_refusals_of_a_whole_request_do_not_look_through_it_each() -> None:
    count = 2_000
    box = NumberedOutbox(PublishFlow(), 7, 0)
    numbers = [CountedInt(each) for each in range(1, count + 1)]
    box.add(columns(*range(count)), numbers)
    sent(box)
    rejections = [Rejection(number=each, error=Error(message="m")) for each in numbers]
    CountedInt.comparisons = 0
    answer = PublishNumberedResponse(acknowledged_to=count, rejections=rejections)
    refused = box.acknowledge(answer, 0)
    assert [each.number for each in refused] == list(range(1, count + 1))
    assert [each.object for each in refused] == list(range(count))
    assert CountedInt.comparisons < 30 * count


def test_numbers_that_skip_some_say_so_and_cover_the_gap_before_them() -> None:
    box = NumberedOutbox(PublishFlow(), 7, 100)
    box.add(columns(1, 2), [101, 102])
    box.add(columns(3, 4), [105, 109])
    box.add(columns(5), [110])
    first, second, third = sent(box)
    assert (first.session, first.first_number, first.number_deltas) == (7, 101, b"")
    assert second.first_number == 103
    assert numbers_of(second) == [105, 109]
    assert (third.first_number, third.number_deltas) == (110, b"")
    assert {each.acknowledged_to for each in (first, second, third)} == {100}
    box.acknowledge(PublishNumberedResponse(acknowledged_to=109), 0)
    assert (box.acknowledged, box.has_work) == (109, True)
    box.rewind()
    (again,) = sent(box)
    assert (again.first_number, again.acknowledged_to) == (110, 109)


def test_an_acknowledgement_within_a_request_is_an_error() -> None:
    """A router that does not know gaps would number objects from the first one on."""
    box = NumberedOutbox(PublishFlow(), 7, 0)
    box.add(columns(1, 2), [5, 9])
    sent(box)
    with pytest.raises(Internal, match="ends no request"):
        box.acknowledge(PublishNumberedResponse(acknowledged_to=2), 0)


def test_refused_objects_are_named_by_their_numbers_once() -> None:
    box = NumberedOutbox(PublishFlow(), 7, 0)
    box.add(columns(11, 12, 13), [5, 7, 9])
    sent(box)
    error = Error(code="INVALID_ARGUMENT", field="lon", message="bad")
    answer = PublishNumberedResponse(
        acknowledged_to=9, rejections=[Rejection(number=7, error=error)]
    )
    (refused,) = box.acknowledge(answer, 0)
    assert (refused.number, refused.object, refused.error.field) == (7, 12, "lon")
    assert box.acknowledge(answer, 0) == []
    with pytest.raises(Internal, match="not outstanding"):
        box.acknowledge(PublishNumberedResponse(rejections=[Rejection(number=10, error=error)]), 0)


@pytest.mark.parametrize(
    "numbers", [[1], [1, 1], [2, 1], [0, 1], [1, 1 << 62], [1, 2 + SPAN_MAX], [1, 2, 3]]
)
def test_numbers_that_do_not_fit_are_refused_and_nothing_is_accepted(numbers: list[int]) -> None:
    box = NumberedOutbox(PublishFlow(), 7, 0)
    with pytest.raises(InvalidArgument, match="numbers"):
        box.add(columns(1, 2), numbers)
    assert (box.added, box.has_work, box.outstanding_bytes) == (0, False, 0)


def test_it_pauses_at_its_limit() -> None:
    box = NumberedOutbox(PublishFlow(outstanding_objects_max=2), 7, 0)
    box.add(columns(1, 2), [1, 2])
    assert box.is_paused
    sent(box)
    box.acknowledge(PublishNumberedResponse(acknowledged_to=2), 0)
    assert not box.is_paused


@pytest.mark.parametrize("run", range(20))
def test_every_number_arrives_with_its_object_whatever_breaks(run: int) -> None:
    rng = random.Random(drawn_seed())
    box = NumberedOutbox(PublishFlow(), 7, 0)
    arrived: dict[int, int] = {}
    under_way: list[PublishNumberedRequest] = []
    number = 0

    def arrive(requests: list[PublishNumberedRequest]) -> None:
        for request in requests:
            # A server drops what begins after a gap.
            assert request.first_number <= max(arrived, default=0) + 1
            ids = read_objects(request.objects).ids.tolist()
            arrived.update(zip(numbers_of(request), ids, strict=True))

    for _ in range(200):
        step = rng.random()
        if step < 0.4:
            numbers = []
            for _ in range(rng.randint(1, 5)):
                number += rng.choice((1, 1, 1, 4))
                numbers.append(number)
            box.add(columns(*numbers), numbers)
        elif step < 0.7:
            under_way += sent(box)
        elif under_way:
            count = rng.randint(1, len(under_way))
            arrive(under_way[:count])
            if step < 0.9:
                known = numbers_of(under_way[count - 1])[-1]
                box.acknowledge(PublishNumberedResponse(acknowledged_to=known), 0)
                under_way = under_way[count:]
            else:
                # The stream breaks: the rest is lost, and so is the answer.
                under_way = []
                box.rewind()
    box.rewind()
    arrive(sent(box))
    assert all(each == found for each, found in arrived.items())
    assert max(arrived) == number
