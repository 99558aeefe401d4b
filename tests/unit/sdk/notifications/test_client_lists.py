"""Lists and events of tracked values are decoded from their columns."""

from __future__ import annotations

import pytest
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
from sirocco_client.notifications.receiving import Receiving

from sirocco.protocol.contract.columns import ENTERS, LEAVES, STAYS
from tests.support.fake_cluster import response_of
from tests.support.list_records import (
    ListChange,
    lists_of,
)
from tests.support.merger_messages import (
    TRACKED,
    response_with,
    sent_by_a_merger,
)


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


@pytest.mark.parametrize("column", ["matches", "starts", "ends", "terms"])
def test_damaged_places_of_words_raise_errors(column: str) -> None:
    response = response_with(sent_by_a_merger()[2])
    setattr(response.list_highlights, column, bytes(4))
    with pytest.raises(Internal):
        NotificationBatch(response, "")


def test_places_of_unknown_words_raise_errors() -> None:
    response = response_with(sent_by_a_merger()[2])
    for column in ("matches", "starts", "ends", "terms"):
        setattr(response.list_highlights, column, bytes(4))
    with pytest.raises(Internal):
        list(NotificationBatch(response, ""))


def test_a_list_counts_as_one_of_the_credit() -> None:
    state = Receiving("ann", None, False, 6)
    state.open_request()
    batch = state.received(response_with(sent_by_a_merger()[2]))
    assert batch is not None
    credit = state.done()
    assert credit is not None
    assert credit.credit.matches == 3
