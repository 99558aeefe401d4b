"""Notifications are decoded from their columns, in every form in which they are requested."""

from __future__ import annotations

import random
from array import array

import pytest
from sirocco_api.v1.receive_service_pb2 import ReceiveResponse
from sirocco_client import Notification
from sirocco_client.errors import Internal
from sirocco_client.notifications.decode import NotificationBatch

from tests.support.fake_cluster import response_of
from tests.support.seeds import drawn_seed


def test_pairs_items_and_columns_agree() -> None:
    for _ in range(20):
        seed = drawn_seed()
        rng = random.Random(seed)
        names = [i if rng.random() < 0.6 else f"ö{i}" for i in range(9)]
        matches = [(f"q{rng.choice('aé')}", rng.choice(names)) for _ in range(rng.randrange(1, 40))]
        batch = NotificationBatch(response_of(matches, 5), "1")
        assert len(batch) == len(matches)
        assert list(batch.pairs()) == matches, f"seed {seed}"
        items = [each for each in batch if isinstance(each, Notification)]
        assert [(each.query, each.object.id) for each in items] == matches, f"seed {seed}"
        assert [each.cursor for each in items] == ["1"] * (len(matches) - 1) + ["5"]
        assert [batch.numbers[row] for row in batch.match_objects] == [
            each.event[1] for each in items
        ]
        assert {each.arrival_ms for each in items} == {1_000}
        assert batch.texts == [each.text for each in batch.objects]


def test_an_empty_response_has_no_matches() -> None:
    batch = NotificationBatch(ReceiveResponse(cursor="3"), "")
    assert len(batch) == 0
    assert list(batch) == list(batch.pairs()) == []


@pytest.mark.parametrize("damage", ["matches.queries", "objects.ids", "queries.handles"])
def test_damage_raises_an_error(damage: str) -> None:
    response = response_of([("q", 1), ("q", 2)], 3)
    part, name = damage.split(".")
    column = getattr(getattr(response, part), name)
    setattr(getattr(response, part), name, column[:-1])
    with pytest.raises(Internal):
        NotificationBatch(response, "")


@pytest.mark.parametrize("column", ["matches.objects", "matches.queries"])
def test_rows_that_there_are_not_raise_an_error(column: str) -> None:
    """An odd server's caused an error of Python's."""
    part, name = column.split(".")
    for read in (list, NotificationBatch.pairs, lambda batch: batch.match_tracks):
        response = response_of([("q", 1), ("q", 2)], 3)
        setattr(getattr(response, part), name, array("I", [0, 2**32 - 1]).tobytes())
        if read not in (list, NotificationBatch.pairs):
            response.matches.changes = bytes(2)
        with pytest.raises(Internal):
            read(NotificationBatch(response, ""))


@pytest.mark.parametrize("size", [0, 8, 15, 24])
def test_events_that_do_not_fit_raise_an_error(size: int) -> None:
    response = response_of([("q", 1), ("q", 2)], 3)
    response.events.sessions = bytes(size)
    with pytest.raises(Internal):
        NotificationBatch(response, "")


@pytest.mark.parametrize("spec", ["{", "[]", "7"])
def test_damaged_queries_raise_an_error(spec: str) -> None:
    response = response_of([("q", 1)], 3)
    response.matches.changes = bytes(1)
    response.queries.specs.append(spec)
    with pytest.raises(Internal):
        list(NotificationBatch(response, ""))


def test_offsets_that_do_not_fit_raise_an_error() -> None:
    response = response_of([("q", 1), ("q", 2)], 3)
    response.queries.id_offsets += bytes(4)
    with pytest.raises(Internal):
        NotificationBatch(response, "").pairs()


@pytest.mark.parametrize("attributes", ["{", "[1]", '{"a":' * 3_000, "NaN"])
def test_damaged_attributes_raise_an_error(attributes: str) -> None:
    response = response_of([("q", 1)], 3)
    response.objects.attributes = attributes.encode()
    response.objects.attribute_offsets = array("I", [0, len(attributes)]).tobytes()
    with pytest.raises(Internal, match="attributes"):
        list(NotificationBatch(response, ""))
