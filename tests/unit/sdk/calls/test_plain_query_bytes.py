"""Queries whose bytes are written at once, against messages filled member by member."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from sirocco_api.v1.query_pb2 import Query as WrittenQuery
from sirocco_api.v1.query_service_pb2 import (
    RegisterQueriesRequest,
    RegisterQueriesResponse,
    RegistrationResult,
)
from sirocco_client.calls.bulk import REQUEST_BYTES_MAX, BulkRegistration
from sirocco_client.calls.plain_queries import plain_query, queries_field
from sirocco_client.errors import InvalidArgument
from sirocco_client.queries.query import KnnQuery, Query, RangeQuery, write_query
from sirocco_client.queries.regions import Circle, Rectangle

PLAIN = RangeQuery(id="q", subscriber="s", region=Rectangle(1.0, 2.0, 3.0, 4.0), text="a AND b")


def test_bytes_are_those_of_the_message() -> None:
    dice = random.Random(5)
    written = 0
    for _ in range(2_000):
        sides = [dice.choice([0.0, -0.0, 1, -73.98, 90, -180, 180.0, 1e-7]) for _ in range(4)]
        query = RangeQuery(
            id="i" * dice.choice([1, 20, 60, 120, 130]),
            subscriber="s" * dice.choice([1, 8, 100]),
            region=Rectangle(*sides),
            text=dice.choice([None, "coffee", "(a OR b) AND NOT c", "x" * 90, '"a \\ b"', "\x00"]),
        )
        data = plain_query(query)
        if data is None:
            continue
        written += 1
        assert WrittenQuery.FromString(data) == write_query(query)
    assert written > 400


OTHERS: list[Query] = [
    replace(PLAIN, region=None),
    replace(PLAIN, region=Circle(1.0, 2.0, 3.0)),
    replace(PLAIN, region=Rectangle(1.0, 2.0, math.nan, 4.0)),
    replace(PLAIN, region=Rectangle(1.0, 2.0, math.inf, 4.0)),
    replace(PLAIN, region=Rectangle(1.0, 200.0, 3.0, 4.0)),
    replace(PLAIN, region=Rectangle(True, 2.0, 3.0, 4.0)),
    replace(PLAIN, text=""),
    replace(PLAIN, text="é"),
    replace(PLAIN, id=""),
    replace(PLAIN, subscriber=""),
    replace(PLAIN, id="\ud800"),
    replace(PLAIN, id=7),  # type: ignore[arg-type]
    replace(PLAIN, text=7),  # type: ignore[arg-type]
    replace(PLAIN, where={"a": 1}),
    replace(PLAIN, ttl="1h"),
    replace(PLAIN, window="1h"),
    replace(PLAIN, track="bus"),
    replace(PLAIN, events=("ended",)),
    replace(PLAIN, events=[]),  # type: ignore[arg-type]
    replace(PLAIN, mode="snapshot"),
    KnnQuery(id="q", subscriber="s", lon=1.0, lat=2.0, k=3),
]


@pytest.mark.parametrize("query", OTHERS, ids=repr)
def test_all_others_are_written_member_by_member(query: Query) -> None:
    assert plain_query(query) is None


def test_a_request_holds_queries_of_any_length() -> None:
    queries = [PLAIN, replace(PLAIN, id="q" * 20_000), replace(PLAIN, text="z" * 90)]
    data = [plain_query(each) or write_query(each).SerializeToString() for each in queries]
    request = RegisterQueriesRequest.FromString(queries_field(data))
    assert list(request.queries) == [write_query(each) for each in queries]
    with pytest.raises(InvalidArgument):
        write_query(replace(PLAIN, text=""))


@pytest.mark.parametrize(
    "rows",
    [
        [PLAIN] * 3,
        [PLAIN, replace(PLAIN, fold=True), PLAIN],
        [replace(PLAIN, id=f"q{n:090}") for n in range(20_000)],
    ],
    ids=["plain", "mixed", "larger than a request"],
)
def test_a_batch_is_sent_whatever_it_is_made_of(rows: list[Query]) -> None:
    bulk = BulkRegistration(None, None)
    bulk.add(rows)
    sent: list[object] = []
    while isinstance(request := bulk.next_request(), RegisterQueriesRequest):
        assert request.ByteSize() <= REQUEST_BYTES_MAX + 16 * len(rows)
        sent += request.queries
        results = [RegistrationResult(revision=n) for n in range(len(request.queries))]
        answered = bulk.answered(RegisterQueriesResponse(results=results))
        assert [each.id for each in answered] == [each.id for each in request.queries]
    assert sent == [write_query(each) for each in rows]
