"""The book of leftovers: when they are looked for, and for how long they count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from sirocco.index.store.store import SlotStore
from sirocco.model.text import analyse_batch
from sirocco.protocol.search.messages import Leftovers
from sirocco.schemes.map.routing import compile_map
from sirocco.services.evaluator.leftovers import AGE_MS_MAX, LOOK_SHARE, LeftoverBook
from sirocco.services.evaluator.slot_store import StoredSearch
from tests.support.random_maps import random_map
from tests.support.values import columns_of

ARRAYS = compile_map(random_map(np.random.default_rng(2), text=False))


@dataclass
class Desk:
    """A book with its clock and its work to do."""

    now_ms: int = 0
    version: int = 2
    epochs: dict[int, int] = field(default_factory=lambda: {0: 5})
    work: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.book = LeftoverBook(
            lambda version: replace(ARRAYS, version=version) if version == self.version else None,
            self.epochs.get,
            self.work.append,
            lambda: self.now_ms,
        )

    def run(self) -> int:
        work, self.work[:] = list(self.work), []
        for action in work:
            action()
        return len(work)


def search(lon: float, lat: float, epoch: int = 5, least_version: int = 2) -> StoredSearch:
    store = SlotStore()
    objects = columns_of([{"id": 1, "lon": lon, "lat": lat, "text": "a"}])
    keys = np.ones(1, np.uint64)
    terms = analyse_batch(objects.text, objects.text_offsets)
    store.append(objects, keys, keys, np.ones(1, np.int64), terms)
    return StoredSearch(store.view(), epoch=epoch, least_version=least_version)


def place_of(*, is_own: bool) -> tuple[float, float]:
    """A place in the middle of a leaf of slot 0, or of another one."""
    rng = np.random.default_rng(3)
    while True:
        lon, lat = rng.uniform(-179, 179), rng.uniform(-89, 89)
        routes = ARRAYS.route_boxes(np.array([[lon, lat, lon, lat]]), np.array([0, 1]))
        if ((routes.slot_of_leaf == 0) == is_own).all():
            return lon, lat


def test_leftovers_are_found_beside_the_search_that_asks_first() -> None:
    desk, one = Desk(), search(*place_of(is_own=False))
    assert desk.book.of(0, 2, one) is None
    assert desk.book.of(0, 2, one) is None
    assert desk.run() == 1
    found = desk.book.of(0, 2, one)
    assert isinstance(found, Leftovers)
    assert (found.slot, found.epoch, found.version, len(found.leaves)) == (0, 5, 2, 1)
    assert desk.run() == 0


def test_nothing_is_reported_while_an_older_map_may_still_bring_objects() -> None:
    desk = Desk()
    assert desk.book.of(0, 2, search(0, 0, least_version=1)) is None
    assert desk.run() == 0


def test_nothing_is_reported_of_a_map_that_is_not_in_force() -> None:
    desk, one = Desk(version=3), search(0, 0, least_version=4)
    desk.book.of(0, 2, one)
    assert desk.run() == 1
    assert desk.book.of(0, 2, one) is None


def test_leftovers_are_looked_for_again_as_they_become_fewer() -> None:
    desk = Desk()
    desk.book.of(0, 2, search(*place_of(is_own=False)))
    desk.run()
    desk.now_ms = AGE_MS_MAX
    assert desk.book.of(0, 2, search(*place_of(is_own=True))) is not None
    assert desk.run() == 0
    desk.now_ms += 1
    # What was known holds until then.
    known = desk.book.of(0, 2, search(*place_of(is_own=True)))
    assert known is not None
    assert len(known.leaves) == 1
    assert desk.run() == 1
    known = desk.book.of(0, 2, search(*place_of(is_own=True)))
    assert known is not None
    assert known.is_empty
    desk.now_ms += 2 * AGE_MS_MAX
    desk.book.of(0, 2, search(*place_of(is_own=True)))
    assert desk.run() == 0


def test_what_was_found_under_another_grant_does_not_count() -> None:
    desk, one = Desk(), search(*place_of(is_own=True))
    desk.book.of(0, 2, one)
    desk.run()
    desk.epochs[0] = 6
    assert desk.book.of(0, 2, one) is None
    del desk.epochs[0]
    assert desk.book.of(0, 2, one) is None


def test_archived_objects_are_named_by_their_newest_arrival() -> None:
    desk, one = Desk(), search(*place_of(is_own=True))
    one.former_upto_ms = {2: 77}.get
    desk.book.of(0, 2, one)
    desk.run()
    known = desk.book.of(0, 2, one)
    assert known is not None
    assert (known.archived_upto_ms, known.is_empty) == (77, False)


def test_a_look_takes_a_hundredth_of_the_time_at_most() -> None:
    desk, one = Desk(), search(*place_of(is_own=False))
    desk.book.of(0, 2, one)
    points = one.points

    def slowly() -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        desk.now_ms += AGE_MS_MAX
        return points()

    one.points = slowly  # type: ignore[method-assign]
    desk.run()
    desk.now_ms += LOOK_SHARE * AGE_MS_MAX
    assert desk.book.of(0, 2, one) is not None
    assert desk.run() == 0
    desk.now_ms += 1
    desk.book.of(0, 2, one)
    assert desk.run() == 1


def test_a_look_that_fails_is_logged_and_not_repeated_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk, one = Desk(), search(0, 0)
    one.points = None  # type: ignore[assignment, method-assign]
    desk.book.of(0, 2, one)
    assert desk.run() == 1
    assert [record.event for record in caplog.records] == ["leftovers_not_found"]  # type: ignore[attr-defined]
    assert desk.book.of(0, 2, one) is None
    assert desk.run() == 0
    desk.now_ms = AGE_MS_MAX + 1
    desk.book.of(0, 2, search(*place_of(is_own=True)))
    assert desk.run() == 1
    assert desk.book.of(0, 2, one) is not None
