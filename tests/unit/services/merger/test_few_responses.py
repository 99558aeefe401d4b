"""Responses with a subscriber's few matches are those that its columns would make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sirocco_api.v1.receive_service_pb2 import ReceiveResponse

from sirocco.codec.columns import put_events, put_matches, put_names, put_objects
from sirocco.model.objects import pack_bytes
from sirocco.protocol.contract.messages import Delivered
from sirocco.protocol.merger.delivery_parts import FEW, FewMatches, RecordViews, joined_parts
from sirocco.protocol.merger.delivery_records import bytes_of, joined, of_subscriber
from sirocco.services.merger.few_responses import oldest_ms_of, put_few
from sirocco.services.merger.tenant_names import without_prefix
from tests.support.random_messages import delivered as random_delivered

PREFIX = "tenant/"


def record_of(rng: np.random.Generator) -> Delivered:
    """Returns a record of matches alone, some with changes, of queries of one tenant."""
    record = random_delivered(rng, int(rng.integers(2, 9)))
    names, matches = record.queries, replace(record.matches, changes=None, distances_m=None)
    if rng.random() < 0.5:
        matches = replace(matches, changes=rng.integers(0, 3, len(matches)).astype(np.uint8))
    ids, id_offsets = pack_bytes([f"{PREFIX}é{row * 37}".encode() for row in range(len(names))])
    subscribers = tuple(f"{PREFIX}s{row}" for row in range(len(names.subscribers)))
    named = replace(names, ids=ids, id_offsets=id_offsets, subscribers=subscribers, specs=None)
    return replace(record, queries=named, matches=matches, lists=None, list_offsets=None)


def response_of(part: Delivered) -> ReceiveResponse:
    response = ReceiveResponse()
    put_objects(response.objects, part.objects)
    put_events(response.events, part.events)
    put_names(response.queries, without_prefix(part.queries, PREFIX))
    put_matches(response.matches, part.matches)
    return response


@pytest.mark.parametrize("seed", range(8))
def test_few_matches_are_what_their_columns_are(seed: int) -> None:
    rng, tried = np.random.default_rng(seed), 0
    for _ in range(40):
        records = [record_of(rng) for _ in range(int(rng.integers(1, 5)))]
        for subscriber in {name for each in records for name in each.queries.subscribers}:
            few = list[FewMatches]()
            columns = list[Delivered]()
            for record in records:
                views = RecordViews.of(record)
                part = None if views is None else views.part_of(subscriber)
                if not isinstance(part, FewMatches):
                    continue
                whole = of_subscriber(record, subscriber)
                assert whole is not None
                assert part.bytes_total == bytes_of(whole)
                few.append(part)
                columns.append(whole)
            if not few:
                continue
            response = ReceiveResponse()
            put_few(response, few, PREFIX)
            assert response == response_of(joined(columns)), f"seed={seed}"
            arrivals_ms = np.concatenate([each.events.arrivals_ms for each in columns])
            assert oldest_ms_of(few) == arrivals_ms.min()
            tried += 1
    assert tried > 40


def test_many_matches_and_few_are_joined_in_their_order() -> None:
    rng = np.random.default_rng(3)
    few = record_of(rng)
    views = RecordViews.of(few)
    assert views is not None
    subscriber = next(s for s in few.queries.subscribers if views.part_of(s) is not None)
    first, second = views.part_of(subscriber), of_subscriber(few, subscriber)
    assert first is not None
    assert second is not None
    ((both, place),) = joined_parts([(first, 1), (second, 2)], 1 << 20)
    assert place == 2
    assert isinstance(both, Delivered)
    assert response_of(both) == response_of(joined([second, second]))


def test_records_with_definitions_lists_or_one_subscriber_have_no_views() -> None:
    record = record_of(np.random.default_rng(5))
    assert RecordViews.of(record) is not None
    named = replace(record.queries, specs=("",) * len(record.queries))
    assert RecordViews.of(replace(record, queries=named)) is None
    alone = replace(record.queries, subscribers=("s",))
    assert RecordViews.of(replace(record, queries=alone)) is None


def test_more_than_a_few_are_taken_as_columns() -> None:
    record = record_of(np.random.default_rng(5))
    count = len(record.matches)
    assert count > FEW
    offsets = np.array([0, *[count] * len(record.queries.subscribers)], np.int64)
    views = RecordViews.of(replace(record, match_offsets=offsets))
    assert views is not None
    assert isinstance(views.part_of(f"{PREFIX}s0"), Delivered)
    assert views.part_of(f"{PREFIX}s1") is None
    assert views.part_of("somebody else") is None
