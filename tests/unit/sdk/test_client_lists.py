"""Lists and events of tracked values are decoded from their columns."""

from __future__ import annotations

import numpy as np
import pytest
from sirocco_api.v1.receive_service_pb2 import ReceiveResponse
from sirocco_client import (
    Ended,
    Internal,
    KnnChange,
    Notification,
    NotificationBatch,
    Object,
    RankedChange,
    TermsStep,
    TrackedNotification,
)
from sirocco_client.receiving import Receiving

from sirocco.codec.columns import put_events, put_matches, put_names, put_objects
from sirocco.codec.lists import put_lists
from sirocco.protocol.contract.columns import ENTERS, LEAVES, STAYS
from sirocco.protocol.contract.messages import Delivered
from tests.support.fake_cluster import response_of
from tests.support.list_records import (
    ListChange,
    ListVersion,
    Match,
    Ranked,
    Seen,
    Terms,
    found_of,
    knn_spec,
    lists_of,
    ranked_spec,
    terms_spec,
    tracked_spec,
)
from tests.support.merger_cluster import MergerCluster

NEAR = ListVersion("near", knn_spec("near", 2))
WORDS = ListVersion("wörds", terms_spec("wörds", 3))
BEST = ListVersion("best", ranked_spec("best", 2))
TRACKED = ListVersion("tracked", tracked_spec("tracked"))


def sent_by_a_merger() -> list[Delivered]:
    """Returns the records of two windows, all of one subscriber."""
    seen = Seen("é", (1, 5), 90, 4, 0.0, (1, 0))
    best = Ranked(asked=BEST, at_ms=100, total=1, tokens=4, holders=(1, 0), seen=(seen,))
    windows = [
        [Match(NEAR, 1, 5.5), Match(NEAR, "näme", 7.25), Match(ListVersion("plain"), 3)],
        [Match(NEAR, 2, 1.125), Terms(WORDS, 100, (("東", 3), ("a", 4))), best],
    ]
    log = [
        found_of([(0, i, i + 1, 101 * i)], [(0, i, item) for item in items])  # type: ignore[attr-defined]
        for i, items in enumerate(windows)
    ]
    cluster = MergerCluster(log=log, slots=1)
    for end in (1, 2):
        cluster.read(end, np.random.default_rng(0))
        cluster.commit()
    return [message for message in cluster.written if isinstance(message, Delivered)]


def response_with(delivered: Delivered, cursor: str = "9") -> ReceiveResponse:
    response = ReceiveResponse(cursor=cursor)
    put_objects(response.objects, delivered.objects)
    put_events(response.events, delivered.events)
    put_names(response.queries, delivered.queries)
    put_matches(response.matches, delivered.matches)
    if delivered.lists is not None:
        put_lists(response.lists, delivered.lists)
    return response


def test_lists_are_those_that_the_merger_sent() -> None:
    plain, first, second = (
        NotificationBatch(response_with(each), "1") for each in sent_by_a_merger()
    )
    assert [type(each) for each in plain] == [Notification]
    assert plain.lists == []

    one, named = Object(1, 1, 2, "text of 1"), Object("näme", 1, 2, "text of näme")
    assert list(first) == [KnnChange("near", (one, named), (), ((1, 5.5), ("näme", 7.25)), "9")]
    assert len(first) == 1
    assert list(first.pairs()) == []

    assert len(second) == 3
    received = {each.query: each for each in second}
    two = Object(2, 1, 2, "text of 2")
    assert received["near"] == KnnChange(
        "near", (two,), ("näme",), ((2, 1.125), (1, 5.5)), received["near"].cursor
    )
    assert received["wörds"] == TermsStep(
        "wörds", 100, (("a", 4), ("東", 3)), received["wörds"].cursor
    )
    best = received["best"]
    assert isinstance(best, RankedChange)
    assert (best.at_ms, best.new) == (100, (Object("é", 1, 2, "text of é"),))
    assert [name for name, _ in best.entries] == ["é"]
    assert not received["wörds"].is_partial  # type: ignore[union-attr]
    # A batch counts as consumed only at its last value.
    assert [each.cursor for each in second] == ["1", "1", "9"]


def test_lists_as_values_agree_with_the_columns() -> None:
    for delivered in sent_by_a_merger():
        expected = lists_of(delivered)
        batch = NotificationBatch(response_with(delivered), "1")
        found = []
        for each in batch.lists:
            if isinstance(each, TermsStep):
                entries = tuple((term, float(count)) for term, count in each.terms)
                found.append(
                    ListChange(
                        subscriber="ann", query=each.query, at_ms=each.at_ms, entries=entries
                    )
                )
                continue
            assert not isinstance(each, Ended)
            new = each.added if isinstance(each, KnnChange) else each.new
            found.append(
                ListChange(
                    subscriber="ann",
                    query=each.query,
                    at_ms=None if isinstance(each, KnnChange) else each.at_ms,
                    entries=each.entries,
                    new=tuple((one.id, one.text) for one in new),
                    removed=each.removed if isinstance(each, KnnChange) else (),
                )
            )
        assert found == expected


def test_tracked_values_hold_their_events() -> None:
    matches = [("plain", 1), ("tracked", 1), ("tracked", 2), ("tracked", 3)]
    response = response_of(matches, 7)
    response.matches.changes = bytes([0, ENTERS, STAYS, LEAVES])
    response.queries.specs.extend(["", TRACKED.spec.replace("vehicle", "a")])
    batch = NotificationBatch(response, "1")
    assert batch.match_changes == ["match", "enter", "inside", "exit"]
    # Only the first object has the attribute.
    assert batch.match_tracks == [None, 1, None, None]
    items = list(batch)
    assert [(each.change, each.track) for each in items if isinstance(each, Notification)] == [
        ("match", None),
        ("enter", 1),
        ("inside", None),
        ("exit", None),
    ]
    assert [type(each) for each in items] == [Notification, *[TrackedNotification] * 3]
    assert [(each.query, each.object.id) for each in items] == matches  # type: ignore[union-attr]
    assert list(batch.pairs()) == matches
    plain = NotificationBatch(response_of(matches, 7), "1")
    assert plain.match_changes == ["match"] * 4
    assert plain.match_tracks == [None] * 4


def test_changes_of_a_later_version_are_delivered() -> None:
    response = response_of([("q", 1)], 7)
    response.matches.changes = bytes([9])
    with pytest.raises(Internal):
        list(NotificationBatch(response, "1"))


@pytest.mark.parametrize(
    "column",
    ["queries", "at_ms", "values", "objects", "ids", "removed_ids", "entry_offsets"],
)
def test_damaged_lists_raise_errors(column: str) -> None:
    response = response_with(sent_by_a_merger()[2])
    setattr(response.lists, column, getattr(response.lists, column) + b"\0")
    with pytest.raises(Internal):
        NotificationBatch(response, "")


def test_a_list_counts_as_one_of_the_credit() -> None:
    state = Receiving("ann", None, False, 6)
    state.open_request()
    batch = state.received(response_with(sent_by_a_merger()[2]))
    assert batch is not None
    credit = state.done()
    assert credit is not None
    assert credit.credit.matches == 3
