"""A slot matches words, not hashes: two words with one xxh3-64 hash stay distinct (ADR 30)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.codec.installs import read_installed, write_installed
from sirocco.index.base.compile import NO_WORDS, compile_queries, with_numbers
from sirocco.index.store.ranked_search import RankedSearch
from sirocco.index.store.store_condition import compile_condition
from sirocco.index.store.store_search import gather, scan_range, search_knn
from sirocco.index.store.term_names import TermNames
from sirocco.index.store.terms_search import count_terms, top_terms
from sirocco.model.query import RankedQuery, parse_query
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.protocol.contract.messages import Installed
from sirocco.protocol.evaluator.reports.match_records import Report
from sirocco.protocol.evaluator.slot.checkpoint import restore_slot, slot_state
from sirocco.protocol.evaluator.slot.slot import Slot
from tests.collisions import FOUND, PAIRS
from tests.support.slot_log import INTAKE_PARTITIONS
from tests.support.values import installed_of, routed_of

HERE = TermHashing("0123456789abcdef0123456789abcdef")
ELSEWHERE = TermHashing("fedcba9876543210fedcba9876543210")
PAIRED = (*PAIRS[:4], ("fire", FOUND["fire"]))
WORDS = [word for pair in PAIRED for word in pair]


def opened(hashing: TermHashing = HERE, offset: int = 0) -> Slot:
    slot = Slot(4, 3, hashing=hashing)
    slot.open(offset, offset, INTAKE_PARTITIONS, 0)
    return slot


def again(slot: Slot, hashing: TermHashing) -> Slot:
    """Returns a successor in a process with another key, from a checkpoint of this one."""
    successor = opened(hashing, slot.offset)
    state = dict(read_state(write_state(slot_state(slot, 0, ()))))
    restore_slot(successor, state, slot.past.store.slices)
    return successor


def standing_queries() -> dict[str, tuple[dict[str, Any], Any]]:
    """Returns id → (members, the condition on a set of words)."""
    queries: dict[str, tuple[dict[str, Any], Any]] = {}
    for number, (one, colliding) in enumerate(PAIRED):
        other = PAIRED[number - 1][0]
        for name, text, holds in (
            ("has", one, lambda w, a=one: a in w),
            ("twin", colliding, lambda w, a=colliding: a in w),
            (
                "not",
                f"{one} AND NOT {colliding}",
                lambda w, a=one, b=colliding: a in w and b not in w,
            ),
            (
                "any",
                f"ANY({one}, {other}) AND NOT {colliding}",
                lambda w, a=one, b=colliding, c=other: (a in w or c in w) and b not in w,
            ),
            ("both", f"{one} AND {colliding}", lambda w, a=one, b=colliding: a in w and b in w),
        ):
            query_id = f"{name}-{number}"
            members = {"id": query_id, "kind": "range", "mode": "continuous", "text": text}
            queries[query_id] = members, holds
            near = {"kind": "knn", "point": {"lon": 1.0, "lat": 1.0}, "k": 1_000}
            queries[f"knn-{query_id}"] = members | near | {"id": f"knn-{query_id}"}, holds
    return queries


def objects_of(seed: int, first: int, count: int = 40) -> list[dict[str, Any]]:
    dice = random.Random(f"{seed} {first}")
    return [
        {
            "id": number,
            "lon": 1.0,
            "lat": 1.0,
            "text": " ".join(dice.choices(WORDS, k=dice.randint(1, 4))),
        }
        for number in range(first, first + count)
    ]


def matches_of(report: Report) -> set[tuple[str, int]]:
    names = report.table.names(report.query_rows)
    ids, bounds = names.ids.tobytes(), names.id_offsets.tolist()
    return {
        (ids[bounds[i] : bounds[i + 1]].decode(), int(report.objects.ids[row]))
        for i, row in enumerate(report.object_rows.tolist())
    }


def expected(objects: list[dict[str, Any]]) -> set[tuple[str, int]]:
    return {
        (query_id, one["id"])
        for query_id, (_, holds) in standing_queries().items()
        for one in objects
        if holds(set(one["text"].split()))
    }


def install(past: bool = False) -> Installed:
    changes = [
        (1 + number, members, "s", 0)
        for number, (members, _) in enumerate(standing_queries().values())
    ]
    message = installed_of(0, changes, past_ms=1_000 if past else -1)
    return read_installed(write_installed(message))


def met(slot: Slot, objects: list[dict[str, Any]], at: int) -> set[tuple[str, int]]:
    times_ms = [at] * len(objects)
    (report,) = slot.take([(slot.offset, routed_of(0, at, objects, times_ms, begin=0))])
    assert isinstance(report, Report)
    return matches_of(report)


@pytest.mark.parametrize("seed", range(5))
def test_standing_queries_meet_words(seed: int) -> None:
    slot = opened()
    slot.take([(0, install())])
    objects = objects_of(seed, 0)
    assert met(slot, objects, 1) == expected(objects), f"seed {seed}"


@pytest.mark.parametrize("heir", [HERE, ELSEWHERE])
def test_a_checkpoint_holds_words_and_is_read_under_any_key(heir: TermHashing) -> None:
    slot = opened()
    slot.take([(0, install())])
    before, after = objects_of(1, 0), objects_of(1, 100)
    assert met(slot, before, 1) == expected(before)
    successor = again(again(slot, heir), heir)
    assert met(successor, after, 2) == expected(after)
    # In a process without a key, or of an earlier version, matches are as before.
    plain = again(successor, WIRE_TERMS)
    assert met(plain, objects_of(1, 200), 3) >= expected(objects_of(1, 200)) - {
        pair for pair in expected(objects_of(1, 200)) if "not" in pair[0] or "any" in pair[0]
    }


def test_what_came_without_words_is_met_by_hash_as_ever_beside_what_has_them() -> None:
    # init: a record of an earlier version, of plain range queries.
    slot, old = opened(), installed_of(0, [(1, old_query(), "s", 0)])
    old = replace(old, rows=replace(old.rows, **NO_WORDS))
    fresh = installed_of(0, [(2, old_query() | {"id": "fresh"}, "s", 0)])
    slot.take([(0, read_installed(write_installed(old))), (1, fresh)])

    # test
    objects = [{"id": n, "lon": 1.0, "lat": 1.0, "text": text} for n, text in enumerate(PAIRED[0])]
    found = met(slot, objects, 1)

    # check
    assert found == {("old", 0), ("old", 1), ("fresh", 0)}
    slot = again(slot, ELSEWHERE)
    assert met(slot, objects, 2) == found


def test_a_router_of_an_earlier_version_may_request_history_of_plain_range_queries() -> None:
    # init: some objects are in sealed slices, some beyond the circle.
    slot, objects = opened(), objects_of(7, 0, 200)
    for number, one in enumerate(objects):
        one["lon"] += number % 2
    met(slot, objects[:100], 1)
    slot.past.store.seal()
    met(slot, objects[100:], 2)
    text = f"({PAIRED[0][0]} AND {PAIRED[1][0]}) OR {PAIRED[2][0]} AND NOT {PAIRED[3][1]}"
    near = {"circle": {"lon": 1.0, "lat": 1.0, "radius_m": 50.0}}
    members = old_query() | {"text": text, "region": near}
    old = installed_of(0, [(1, members, "s", 2)], past_ms=1_000)

    # test
    (report,) = slot.take([(slot.offset, replace(old, rows=replace(old.rows, **NO_WORDS)))])

    # check: by the wire hash, under which both words of a pair are one.
    assert isinstance(report, Report)
    one_of = {word: pair[0] for pair in PAIRED for word in pair}
    found = [{one_of[word] for word in one["text"].split()} for one in objects]
    wanted = [
        number
        for number, words in enumerate(found)
        if {PAIRED[0][0], PAIRED[1][0]} <= words
        or (PAIRED[2][0] in words and PAIRED[3][0] not in words)
    ]
    assert matches_of(report) == {("old", number) for number in wanted if number % 2 == 0}


def old_query() -> dict[str, Any]:
    return {"id": "old", "kind": "range", "mode": "continuous", "text": PAIRED[0][0]}


def test_definitions_give_the_words_that_a_record_of_an_earlier_version_lacks() -> None:
    slot = opened()
    members = old_query() | {"kind": "knn", "point": {"lon": 1.0, "lat": 1.0}, "k": 9}
    old = installed_of(0, [(1, members, "s", 0)])
    slot.take([(0, replace(old, rows=replace(old.rows, **NO_WORDS)))])
    objects = [{"id": n, "lon": 1.0, "lat": 1.0, "text": text} for n, text in enumerate(PAIRED[0])]
    assert met(slot, objects, 1) == {("old", 0)}


def test_a_checkpoint_of_an_earlier_version_gets_words_from_definitions() -> None:
    slot = opened(WIRE_TERMS)
    slot.take([(0, install())])
    state = dict(read_state(write_state(slot_state(slot, 0, ()))))
    for name in [name for name in state if name.rsplit(".", 1)[-1] in NO_WORDS]:
        del state[name]
    successor = opened(HERE, slot.offset)
    restore_slot(successor, state, ())
    objects = objects_of(5, 0)
    found = {pair for pair in met(successor, objects, 1) if pair[0].startswith("knn")}
    # If a text has both words of a hash, it is unknown which one is excluded.
    sure = {pair for pair in expected(objects) if pair[0].startswith("knn")}
    one_word = {"knn-has", "knn-twin"}
    kept = {pair for pair in found if pair[0].rsplit("-", 1)[0] in one_word}
    assert kept == {pair for pair in sure if pair[0].rsplit("-", 1)[0] in one_word}


def test_words_that_are_not_those_of_the_terms_are_refused() -> None:
    request = write_installed(installed_of(0, [(1, old_query(), "s", 0)]))
    request.words = b"x" * len(request.words)
    with pytest.raises(Exception, match="not the words of the terms"):
        read_installed(request)


@pytest.mark.parametrize("seal", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_searches_meet_words(seal: bool, restart: bool) -> None:
    # init
    slot, hashing = opened(), HERE
    objects = objects_of(3, 0, 200)
    met(slot, objects, 1)
    if restart:
        slot, hashing = again(slot, ELSEWHERE), ELSEWHERE
    if seal:
        slot.past.store.seal()
    view = slot.past.store.view()

    for members, holds in standing_queries().values():
        # test
        query = parse_query(members | {"mode": "snapshot", "window": "1h"})
        rows = with_numbers(compile_queries([query], [0]), hashing)
        condition = compile_condition(rows)
        if members["kind"] == "knn":
            found = search_knn(view, 1.0, 1.0, 1_000, condition).ids.tolist()
        else:
            stored = gather(list(scan_range(view, condition)))
            found = [] if stored is None else stored.objects.ids.tolist()
        # check
        wanted = [one["id"] for one in objects if holds(set(one["text"].split()))]
        assert sorted(found) == wanted, members

    counted = Counter(word for one in objects for word in set(one["text"].split()))
    best = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
    names = TermNames(hashing)
    for k in (1, 3, len(best)):
        assert top_terms(count_terms(view, k=k), k, names) == best[:k]
    ranked = parse_query(
        {"id": "r", "kind": "ranked", "mode": "snapshot", "point": {"lon": 1.0, "lat": 1.0}}
        | {
            "k": 5,
            "radius_m": 100.0,
            "keywords": [PAIRED[0][0], PAIRED[1][1]],
            "window": "1h",
        }
    )
    assert isinstance(ranked, RankedQuery)
    part = RankedSearch(ranked, hashing).search(view, 1)
    assert part.holders.tolist() == [counted[PAIRED[0][0]], counted[PAIRED[1][1]]]
    assert np.all(part.frequencies.sum(1) > 0)
