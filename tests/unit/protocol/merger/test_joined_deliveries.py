"""Parts of several records in one: the same matches in the same order, within a size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from sirocco_api.v1.receive_service_pb2 import ReceiveResponse

from sirocco.codec.columns import put_events, put_matches, put_names, put_objects
from sirocco.protocol.contract.columns import MatchColumns
from sirocco.protocol.contract.messages import Delivered
from sirocco.protocol.merger.delivery_parts import joined_parts
from sirocco.protocol.merger.delivery_records import bytes_of, compacted, of_subscriber
from tests.support.random_messages import delivered as random_delivered


def parts_of(rng: np.random.Generator) -> list[tuple[Delivered, int]]:
    """Returns what some records hold for one subscriber, with the numbers of the records."""
    parts = []
    for place in range(12):
        record = random_delivered(rng, int(rng.integers(1, 9)))
        part = of_subscriber(record, record.queries.subscribers[0])
        if part is not None:
            parts.append((part, place))
    return parts


def content(part: Delivered) -> Iterator[tuple[object, ...]]:
    """Yields each match with all that belongs to it, and each list by its query."""
    matches, names = part.matches, part.queries
    for number, (row, query) in enumerate(
        zip(matches.objects.tolist(), matches.queries.tolist(), strict=True)
    ):
        begin, end = names.id_offsets[query : query + 2].tolist()
        first, last = part.objects.text_offsets[row : row + 2].tolist()
        yield (
            "match",
            names.ids[begin:end].tobytes(),
            names.handles[query],
            "" if names.specs is None else names.specs[query],
            0 if matches.changes is None else matches.changes[number],
            part.objects.text[first:last].tobytes(),
            part.events.arrivals_ms[row],
        )
    for query in () if part.lists is None else part.lists.queries.tolist():
        yield "list", names.handles[query]


@pytest.mark.parametrize("bytes_max", [0, 2_000, 1 << 20])
@pytest.mark.parametrize("seed", range(12))
def test_joined_parts_hold_the_same_in_the_same_order(seed: int, bytes_max: int) -> None:
    parts = parts_of(np.random.default_rng(seed))
    found = []
    for part, place in joined_parts(parts, bytes_max):
        assert isinstance(part, Delivered)
        found.append((part, place))
    flat = [one for part, _ in parts for one in content(part)]
    assert [one for part, _ in found for one in content(part)] == flat, f"seed={seed}"
    # Each ends where its last record does, and none goes beyond the size unless it is alone.
    places = [place for _, place in parts]
    ends = [place for _, place in found]
    assert ends == sorted(set(ends))
    assert ends[-1:] == places[-1:]
    apart = {id(part) for part, _ in parts}
    for part, _ in found:
        assert id(part) in apart or bytes_of(part) <= bytes_max, f"seed={seed}"
        assert id(part) in apart or part.lists is None
        assert part.match_offsets.tolist() == [0, len(part.matches)]


def test_what_fits_is_one_part() -> None:
    parts = [(part, place) for part, place in parts_of(np.random.default_rng(3)) if not part.lists]
    assert len(parts) > 2
    assert len(list(joined_parts(parts, 1 << 30))) == 1


@pytest.mark.parametrize("seed", range(6))
def test_each_subscriber_gets_its_own_part_alone(seed: int) -> None:
    # Subscribers whose names have one hash share a Kafka partition, and so records.
    record = random_delivered(np.random.default_rng(seed), 8)
    for row, subscriber in enumerate(record.queries.subscribers):
        begin, end = record.match_offsets[row : row + 2].tolist()
        part = of_subscriber(record, subscriber)
        assert begin == end if part is None else len(part.matches) == end - begin, f"seed={seed}"
        assert part is None or part.queries.subscribers == (subscriber,)
    assert of_subscriber(record, "somebody else") is None


def test_a_part_of_one_match_is_what_remains_of_the_record_without_the_rest() -> None:
    rng, tried = np.random.default_rng(9), 0
    for _ in range(300):
        record = random_delivered(rng, int(rng.integers(2, 6)))
        names, offsets = record.queries, record.match_offsets
        for row in np.flatnonzero(np.diff(offsets) == 1).tolist():
            if record.list_offsets is not None and np.diff(record.list_offsets)[row]:
                continue
            subscriber = names.subscribers[row]
            part = of_subscriber(record, subscriber)
            assert part is not None
            assert written(part) == written(_without_the_rest(record, row)), subscriber
            tried += len(names.subscribers) > 1
    assert tried > 20


def _without_the_rest(record: Delivered, row: int) -> Delivered:
    begin, end = record.match_offsets[row : row + 2].tolist()
    names, matches = record.queries, record.matches
    changes = None if matches.changes is None else matches.changes[begin:end]
    own = replace(
        names,
        subscriber_rows=np.zeros(len(names), np.uint32),
        subscribers=(names.subscribers[row],),
    )
    return compacted(
        Delivered(
            objects=record.objects,
            events=record.events,
            queries=own,
            matches=MatchColumns(matches.objects[begin:end], matches.queries[begin:end], changes),
            match_offsets=np.array([0, 1], np.int64),
        )
    )


def written(part: Delivered) -> bytes:
    """Returns the response to the subscriber."""
    response = ReceiveResponse()
    put_objects(response.objects, part.objects)
    put_events(response.events, part.events)
    put_names(response.queries, part.queries)
    put_matches(response.matches, part.matches)
    return response.SerializeToString(deterministic=True)
