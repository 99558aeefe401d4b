"""The simulator's ledger judges the answers of searches."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.model.query import parse_query
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.positions import position_of
from sirocco.protocol.search.messages import EVER_MS, AnswerRows
from tests.simulation.ledger import BrokenPromiseError, Ledger, Published
from tests.simulation.log import Delays, SimLog
from tests.simulation.scheduler import Scheduler
from tests.simulation.search_ledger import Searched
from tests.simulation.searches import EventKey, Request, Result
from tests.simulation.services import Shape
from tests.simulation.world import World
from tests.support.values import columns_of

QUERY = {
    "id": "search",
    "kind": "ranked",
    "mode": "snapshot",
    "point": {"lon": 0.0, "lat": 0.0},
    "radius_m": 100_000.0,
    "k": 2,
    "keywords": ["pizza"],
    "weights": {"text": 0.0, "space": 0.0, "time": 1.0},
    "half_life": "1s",
}

# The slot that is asked, and another one without objects in the radius; longitudes of objects.
ASKED, OTHER = 0, 1
NEAR, FAR = 0.5, 90.0

# Objects 1 and 2 are acknowledged when the search begins, 3 is not. Then the end of the search,
# and times before and after it.
OLDEST, OLD, NEW = (7, 1), (7, 2), (7, 3)
TOKEN = {0: 1}
BEFORE_MS, END_MS, AFTER_MS = 900.0, 1_000.0, 1_100.0

# Their scores: each has arrived a second after the one before it.
OF_OLDEST, OF_OLD, OF_NEW = 0.25, 0.5, 1.0
NOW_MS = 3_000


@pytest.fixture
def ledger() -> Ledger:
    world = World(Shape(slots=2, intake=1, registry=1, partials=1, first_map=b""), [], {}, 0.0)
    return Ledger(SimLog(Scheduler(0), Delays(), is_coded=False), world)


def publish(ledger: Ledger, key: EventKey, lon: float, slot: int, home_ms: float) -> None:
    """Publishes an object that has been in its slot since `home_ms`."""
    _, number = key
    ledger.objects[key] = Published(
        members={"id": number, "lon": lon, "lat": 0.0, "text": "pizza"},
        words=["pizza"],
        places={slot: (number - 1, 0)},
        arrival_ms=1_000 * number,
        position=position_of(number - 1),
        home_ms=home_ms,
    )


def check(ledger: Ledger, found: dict[EventKey, float]) -> None:
    """Checks a search that found these objects, with their scores."""
    request = Request(parse_query(QUERY), None, TOKEN, 1_000)
    search = Searched(
        name="search (ranked)",
        members=QUERY,
        request=request,
        taken={},
        processed={0: 0},
        must_be_whole=False,
    )
    named = [ledger.objects[key] for key in found]
    keys = np.array([*found], np.uint64).reshape(-1, 2)
    arrivals_ms = np.array([one.arrival_ms for one in named], np.int64)
    search.result = Result(
        now_ms=NOW_MS,
        from_ms=EVER_MS,
        answered={ASKED: ("evaluator", 0)},
        answer=AnswerRows(
            columns_of([one.members for one in named]),
            EventColumns(keys[:, 0], keys[:, 1], arrivals_ms),
            np.array([*found.values()]),
        ),
    )
    search.end_ms = END_MS
    ledger.searches.searches = [search]
    ledger.searches.check()


def test_objects_that_arrived_during_a_search_may_be_ranked_though_as_much_is_on_its_way_elsewhere(
    ledger: Ledger,
) -> None:
    publish(ledger, OLDEST, NEAR, ASKED, BEFORE_MS)
    publish(ledger, OLD, FAR, OTHER, AFTER_MS)
    publish(ledger, NEW, NEAR, ASKED, BEFORE_MS)
    check(ledger, {NEW: OF_NEW, OLDEST: OF_OLDEST})
    check(ledger, {OLDEST: OF_OLDEST})


def test_objects_that_arrived_outside_the_radius_leave_nothing_in_doubt(ledger: Ledger) -> None:
    publish(ledger, OLDEST, NEAR, ASKED, BEFORE_MS)
    publish(ledger, NEW, FAR, ASKED, BEFORE_MS)
    check(ledger, {OLDEST: OF_OLDEST})
    with pytest.raises(BrokenPromiseError, match="names 0 objects instead of 1"):
        check(ledger, {})


def test_what_lies_outside_the_radius_is_ranked_without_reason(ledger: Ledger) -> None:
    publish(ledger, OLD, FAR, ASKED, BEFORE_MS)
    publish(ledger, NEW, NEAR, ASKED, BEFORE_MS)
    with pytest.raises(BrokenPromiseError, match="without reason"):
        check(ledger, {OLD: OF_OLD})


def test_what_the_token_names_is_missed_as_long_as_its_slot_lacks_it(ledger: Ledger) -> None:
    publish(ledger, OLDEST, NEAR, ASKED, BEFORE_MS)
    publish(ledger, OLD, NEAR, ASKED, AFTER_MS)
    publish(ledger, NEW, NEAR, ASKED, BEFORE_MS)
    with pytest.raises(BrokenPromiseError, match=r"lacks \(7, 2\)"):
        check(ledger, {NEW: OF_NEW, OLDEST: OF_OLDEST})
