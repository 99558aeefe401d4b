"""Lists of standing knn queries, compared with sorting all candidates."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import orjson
import pytest

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.codec.hops import encode
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.protocol.contract.columns import QueryNames
from sirocco.protocol.contract.record_sizes import RecordLimits
from sirocco.protocol.merger.delivery_records import list_deliveries
from sirocco.protocol.merger.knn_changes import Candidates
from sirocco.protocol.merger.knn_lists import KnnLists
from sirocco.protocol.merger.limits import LIMITS, MergerLimits
from sirocco.transport.log import RECORD_BYTES_MAX
from tests.support.list_records import (
    ListChange,
    ListVersion,
    Match,
    ObjectId,
    Row,
    found_of,
    knn_spec,
    lists_of,
)
from tests.support.merger_states import state_of

# (distance, number of the id, session, number, id as shown)
Known = tuple[float, int, int, int, ObjectId]


class Both:
    """The lists, and all their input."""

    def __init__(self, limits: MergerLimits = LIMITS) -> None:
        self.lists = KnnLists(limits=limits)
        self.seen: dict[int, list[Known]] = defaultdict(list)
        self.known_lists: dict[int, list[Known]] = defaultdict(list)
        self.position = 0

    def add(self, wanted: list[tuple[int, int, ObjectId, float]]) -> None:
        """Adds candidates: (query number, k, object, distance)."""
        rows: list[Row] = []
        for query, k, name, distance_m in wanted:
            asked = ListVersion(f"q{query}", knn_spec(f"q{query}", k), f"s{query % 3}")
            rows.append((0, self.position, Match(asked, name, distance_m)))
            self.position += 1
        found = found_of([(0, 0, self.position, 0)], rows)
        matches = found.matches
        assert matches.distances_m is not None
        assert found.queries.specs is not None
        numbers = np.array([int(q) for q in _ids(found.queries)])[matches.queries]
        ks = np.array([_k(text) for text in found.queries.specs], np.int32)[matches.queries]
        at = self.lists.rows_of(numbers.astype(np.uint64) + 1, ks)
        self.lists.add(Candidates(found, at, matches.objects, matches.queries, matches.distances_m))
        events = found.events
        for i, row in enumerate(matches.objects.tolist()):
            query, _, name, distance_m = wanted[i]
            number = int(found.objects.ids[row])
            event = int(events.sessions[row]), int(events.numbers[row])
            self.seen[query].append((distance_m, number, *event, name))

    def check(self, ks: dict[int, int], where: str) -> None:
        """Reported changes lead from each list to the next, and only between different lists."""
        sent = [each for record in list_deliveries(self.lists.flush()) for each in lists_of(record)]
        by_query = {each.query: each for each in sent}
        assert len(by_query) == len(sent), where
        for query, seen in self.seen.items():
            before, now = self.known_lists[query], sorted(set(seen))[: ks[query]]
            self.known_lists[query] = now
            new = [each for each in now if each not in before]
            if not new:
                assert f"q{query}" not in by_query, where
                continue
            assert by_query.pop(f"q{query}") == ListChange(
                subscriber=f"s{query % 3}",
                query=f"q{query}",
                at_ms=None,
                entries=tuple((each[4], each[0]) for each in now),
                new=tuple((each[4], f"text of {each[4]}") for each in new),
                removed=tuple(each[4] for each in before if each not in now),
            ), where
        assert not by_query, where


def _ids(names: QueryNames) -> list[str]:
    data, bounds = names.ids.tobytes(), names.id_offsets.tolist()
    return [data[a + 1 : b].decode() for a, b in itertools.pairwise(bounds)]


def _k(text: str) -> int:
    return int(text.split('"k":')[1].split(",", maxsplit=1)[0].rstrip("}"))


def test_lists_hold_what_shows_words_where_queries_ask_for_it() -> None:
    plain = ListVersion("plain", knn_spec("plain", 1), "s")
    members = {"id": "shown", "kind": "knn", "mode": "continuous", "k": 1, "text": "a"}
    spec = orjson.dumps(members | {"highlight": True, "where": {"n": 1}, "revision": 7}).decode()
    shown = ListVersion("shown", spec, "s")
    rows: list[Row] = [(0, 0, Match(plain, "o", 1.0)), (0, 1, Match(shown, "o", 1.0))]
    found = found_of([(0, 0, 2, 0)], rows)
    matches, lists = found.matches, KnnLists()
    assert matches.distances_m is not None
    at = lists.rows_of(matches.queries.astype(np.uint64) + 1, np.ones(2, np.int32))
    lists.add(Candidates(found, at, matches.objects, matches.queries, matches.distances_m))
    (record,) = list_deliveries(lists.flush())
    assert sorted(record.queries.specs or ()) == [
        "",
        '{"id":"shown","kind":"knn","mode":"continuous","k":1,"text":"a","highlight":true}',
    ]


@pytest.mark.parametrize("seed", range(30))
def test_lists_are_the_k_least_of_all_that_was_seen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Room is reused repeatedly, and compacted.
    limits = MergerLimits(free_entries_max=4)
    both = Both(limits)
    ks = {query: int(rng.choice([1, 2, 3, 9, 40])) for query in range(8)}
    for step in range(40):
        for _ in range(int(rng.integers(0, 4))):
            both.add(
                [
                    (
                        query := int(rng.integers(8)),
                        ks[query],
                        int(rng.integers(50)) if rng.random() < 0.6 else f"ö{rng.integers(50)}",
                        # Few distances: ties decide.
                        float(rng.integers(60)) / 8,
                    )
                    for _ in range(int(rng.integers(1, 30)))
                ]
            )
        both.check(ks, f"seed={seed}, step {step}")
        if rng.random() < 0.2:
            removed = int(rng.integers(8))
            both.lists.drop(np.array([removed + 1], np.uint64))
            both.seen[removed], both.known_lists[removed] = [], []
        if rng.random() < 0.2:
            saved = read_state(write_state(state_of(both.lists)))
            both.lists = KnnLists(limits=limits)
            both.lists.restore(saved)


def test_an_object_that_came_and_went_between_two_looks_is_not_reported() -> None:
    both = Both()
    both.add([(0, 1, 7, 5.0)])
    both.add([(0, 1, 8, 4.0)])
    (sent,) = (each for record in list_deliveries(both.lists.flush()) for each in lists_of(record))
    assert sent.entries == ((8, 4.0),)
    assert sent.removed == ()
    assert [name for name, _ in sent.new] == [8]


def test_a_list_that_ends_takes_what_was_collected_for_it_along() -> None:
    both = Both()
    both.add([(0, 2, 7, 5.0), (1, 2, 7, 5.0)])
    both.lists.drop(np.array([1], np.uint64))
    # The row is reused by a query that has nothing yet.
    both.add([(2, 2, 9, 1.0)])
    sent = [each for record in list_deliveries(both.lists.flush()) for each in lists_of(record)]
    assert {(each.query, each.entries) for each in sent} == {
        ("q1", ((7, 5.0),)),
        ("q2", ((9, 1.0),)),
    }


def test_equal_candidates_count_once() -> None:
    both = Both()
    both.add([(0, 3, 7, 5.0)])
    for _ in range(2):
        both.lists.add(both.lists._candidates[0])
    (sent,) = (each for record in list_deliveries(both.lists.flush()) for each in lists_of(record))
    assert sent.entries == ((7, 5.0),)


def test_changes_too_large_for_one_record_are_sent_one_after_the_other() -> None:
    both = Both(MergerLimits(records=RecordLimits(bytes_max=1)))
    both.add([(0, 2, 7, 5.0), (0, 2, 8, 6.0)])
    both.add([(0, 2, 9, 1.0)])
    sent = [each for record in list_deliveries(both.lists.flush()) for each in lists_of(record)]
    assert [each.entries for each in sent] == [((7, 5.0), (8, 6.0)), ((9, 1.0), (7, 5.0))]
    assert sent[1].removed == (8,)


@pytest.mark.parametrize("k", [3_000, 10_000])
def test_a_list_of_long_string_ids_is_sent_with_all_of_them(k: int) -> None:
    asked = ListVersion("q", knn_spec("q", k))
    lists = KnnLists()
    names: set[str] = set()
    for turn in range(2):
        # Each turn replaces all entries of the one before.
        own = [f"{turn}-{i:06}-" + "n" * (DEFAULT_LIMITS.id_bytes - 9) for i in range(k)]
        for begin in range(0, k, 2_500):
            part = own[begin : begin + 2_500]
            matches = [
                (0, begin + i, Match(asked, name, 10.0 - 5 * turn)) for i, name in enumerate(part)
            ]
            found = found_of([(0, turn * k + begin, turn * k + begin + len(part), 0)], matches)
            rows = lists.rows_of(np.zeros(len(part), np.uint64), np.full(len(part), k, np.int32))
            count = len(part)
            lists.add(
                Candidates(
                    found,
                    rows,
                    found.matches.objects,
                    np.zeros(count, np.uint32),
                    np.full(count, 10.0 - 5 * turn),
                )
            )
        for record in list_deliveries(lists.flush()):
            assert encode(record)[1].ByteSize() + 4_096 < RECORD_BYTES_MAX
            for each in lists_of(record):
                listed = {name for name, _ in each.entries if isinstance(name, str)}
                removed = {name for name in each.removed if isinstance(name, str)}
                assert (len(listed), len(removed)) == (len(each.entries), len(each.removed))
                names = names - removed | listed
                assert names == listed
        assert names == set(own)


def test_an_entry_takes_at_most_64_bytes_beside_its_name() -> None:
    lists = KnnLists()
    count, k = 20_000, 10
    rng = np.random.default_rng(1)
    asked = ListVersion("q", knn_spec("q", k))
    found = found_of([(0, 0, k, 0)], [(0, i, Match(asked, i, 1.0)) for i in range(k)])
    keys = np.repeat(rng.permutation(count).astype(np.uint64), k)
    rows = lists.rows_of(keys, np.full(len(keys), k, np.int32))
    objects = np.tile(np.arange(k, dtype=np.uint32), count)
    # As in operation: lists grow in several steps.
    for part in range(k):
        some = objects == part
        distances_m = rng.random(int(some.sum()))
        queries = np.zeros(len(distances_m), np.uint32)
        lists.add(Candidates(found, rows[some], objects[some], queries, distances_m))
        lists.flush(sends=False)
    assert len(lists) == count
    assert lists.bytes_total / (count * k) <= 64


def test_what_was_merged_before_a_version_does_not_wait_for_ever() -> None:
    """Its bytes stayed counted, and a partition with half of what may wait was not read again."""
    # init: a later version of a query takes the row of one with candidates.
    lists = KnnLists()
    asked = ListVersion("q", knn_spec("q", 3))
    found = found_of([(0, 0, 1, 0)], [(0, 0, Match(asked, 7, 1.0))])
    matches = found.matches
    assert matches.distances_m is not None
    key, k, query = np.array([5], np.uint64), np.array([3], np.int32), np.array([9], np.uint64)
    at = lists.rows_of(key, k, query, np.array([1]))
    lists.add(Candidates(found, at, matches.objects, matches.queries, matches.distances_m))
    waiting = lists.bytes_waiting
    assert lists.rows_of(key + np.uint64(1), k, query, np.array([2])).tolist() == at.tolist()
    assert lists.bytes_waiting == waiting > 0

    # test
    assert len(lists.flush()) == 1
    assert lists.bytes_waiting == 0
