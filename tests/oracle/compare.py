"""All kinds together: the expected results of each query, and the errors in OUT."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache

from tests.oracle import ends, knn, ranges, ranked, terms
from tests.oracle.forms import Answer, Line, unequal
from tests.oracle.table import Arrival, Members, ObjectId, Objects

_KINDS: dict[str, Callable[[Objects, Members], Answer]] = {
    "range": ranges.answer,
    "knn": knn.answer,
    "terms": terms.answer,
    "ranked": ranked.answer,
}


def answers(
    objects: Sequence[Members], queries: Iterable[Members], arrival: Arrival = "event"
) -> dict[str, Answer]:
    """Returns the expected results of each query, by its id.

    Args:
        objects: Valid objects in order of publication.
        queries: Valid queries of different ids; continuous ones registered before the first
            object, snapshots asked after the last.
        arrival: As the option of `sirocco replay`. With "wall" no query may depend on time.
    """
    table, known = _table(json.dumps(objects), arrival)
    found: dict[str, Answer] = {}
    for query in queries:
        text = json.dumps(query)
        if text not in known:
            own = json.loads(text)
            known[text] = ends.answer(table, own, _KINDS[own["kind"]](table, own))
        found[query["id"]] = known[text]
    return found


# Tests on several clusters want the same answers, and some ask for each query by itself: for tens
# of thousands of objects that takes ten seconds each time.
@lru_cache(4)
def _table(objects: str, arrival: Arrival) -> tuple[Objects, dict[str, Answer]]:
    """Returns the objects as columns, and the answers so far by the JSON of their queries."""
    return Objects(json.loads(objects), arrival), {}


def agrees(
    lines: Iterable[Line],
    objects: Sequence[Members],
    queries: Iterable[Members],
    *,
    arrival: Arrival = "event",
    bad_lines: Collection[tuple[str, int]] = (),
) -> list[str]:
    """Returns the differences of OUT from the expected results; nothing if there are none.

    Args:
        lines: All lines of OUT in their order.
        objects, queries, arrival: As in `answers`: the good lines of the files.
        bad_lines: File and number of each bad line.
    """
    wanted = answers(objects, queries, arrival)
    found: dict[str, list[Line]] = defaultdict(list)
    errors: Counter[tuple[object, object]] = Counter()
    difference: list[str] = []
    for line in lines:
        if set(line) == {"error", "file", "line"}:
            errors[line["file"], line["line"]] += 1
        elif line.get("query") in wanted:
            found[line["query"]].append(line)
        else:
            difference.append(f"a line of no query: {line!r:.200}")
    difference += [f"bad line {one}" for one in unequal(errors, Counter(bad_lines))]
    for query, answer in wanted.items():
        difference += [f"{query}: {one}" for one in answer.differences(found[query])]
    return difference


def matches(
    objects: Sequence[Members], queries: Iterable[Members], *, event_arrivals: bool = False
) -> Counter[tuple[str, ObjectId]]:
    """Returns how often each (query id, object id) is to be notified.

    Args:
        objects: Valid objects in order of publication.
        queries: Valid continuous range queries, registered before the first object.
        event_arrivals: Lifetimes follow the objects' own times (`--arrival event`); otherwise
            no query may have a lifetime.
    """
    found: Counter[tuple[str, ObjectId]] = Counter()
    for query, answer in answers(objects, queries, "event" if event_arrivals else "wall").items():
        assert isinstance(answer, ranges.Matches), f"{query} is no plain continuous range query"
        found.update({(query, one): count for one, count in answer.counts.items()})
    return found
