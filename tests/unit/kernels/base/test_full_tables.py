"""Full and short arrays: kernels report them, end, and change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.kernels.base import handle_table, row_table
from sirocco.kernels.base.blocks import new_block_state, take_block
from sirocco.kernels.base.faults import KernelError, required
from sirocco.kernels.base.stretch_table import (
    FILTER_SHIFT,
    erase,
    find,
    find_or_add,
    hash_of,
    home_of,
    new_table_state,
    slots_needed,
    stretch,
)
from sirocco.kernels.routing.keyword_filter import add_keywords, keep_wanted
from sirocco.kernels.standing.pyramid import POSTING_WORDS, STATE_FREE
from sirocco.kernels.standing.range_post import post, unpost
from sirocco.kernels.standing.term_ids import acquire_ids, look_up_ids, release_ids
from sirocco.kernels.standing.term_table import (
    BUCKET_WORDS,
    buckets_needed,
    erase_term,
    find_term,
    hash_of_term,
    stretch_terms,
)
from sirocco.kernels.store.slice_seal import number_terms, rank_terms
from sirocco.kernels.store.sliding_term_counts import put_codes

U8, I4, I8 = np.uint64, np.int32, np.int64
SECRET = (U8(0xD1342543DE82EF95), U8(0x9E3779B97F4A7C15))


@pytest.mark.parametrize("size", [1, 2, 4, 64])
def test_a_full_table_of_handles_is_searched_once_and_takes_no_more(size: int) -> None:
    keys, rows = np.zeros(size, U8), np.zeros(size, I4)
    handles = np.arange(size + 1, dtype=U8)
    numbers = np.arange(size + 1, dtype=I4)
    assert handle_table.put(keys, rows, handles[:size], numbers[:size], *SECRET) == size
    before = keys.copy(), rows.copy()
    assert handle_table.put(keys, rows, handles[size:], numbers[size:], *SECRET) == -1
    assert (keys == before[0]).all()
    assert (rows == before[1]).all()
    out = np.empty(size + 1, I4)
    handle_table.get(keys, rows, handles, out, *SECRET)
    assert out.tolist() == [*range(size), -1]
    assert handle_table.drop(keys, rows, handles, *SECRET) == size
    assert not rows.any()


@pytest.mark.parametrize("size", [1, 2, 4, 64])
def test_a_full_table_of_rows_is_searched_once_and_takes_no_more(size: int) -> None:
    places = np.zeros(size, I4)
    handles = np.arange(size + 1, dtype=U8)
    numbers = np.arange(size + 1, dtype=I4)
    assert row_table.put(places, handles, numbers[:size], *SECRET) == size
    before = places.copy()
    assert row_table.put(places, handles, numbers[size:], *SECRET) == -1
    assert (places == before).all()
    out = np.empty(size + 1, I4)
    row_table.get(places, handles, handles, out, *SECRET)
    assert out.tolist() == [*range(size), -1]
    assert row_table.drop(places, handles, handles, *SECRET) == size
    assert not places.any()


def test_keywords_without_room_open_their_slots() -> None:
    terms, hints = np.zeros(4, U8), np.zeros(4, np.uint8)
    sets, open_set = np.zeros((4, 1), U8), np.zeros(1, U8)
    given = np.arange(1, 7, dtype=U8)
    own = (U8(1) << np.arange(6, dtype=U8)).reshape(-1, 1)
    fresh = np.empty(6, np.bool_)
    # More keywords are allowed than there are places.
    count = add_keywords(given, own, 0, 100, terms, sets, hints, open_set, fresh, *SECRET)
    assert count == 4
    assert open_set.tolist() == [0b110000]
    keep = np.empty(6, np.bool_)
    rows, slots = np.zeros(6, I4), np.arange(6, dtype=I4)
    columns = np.array([0, 1], I8), np.array([99], U8), rows, slots
    keep_wanted(*columns, terms, sets, hints, open_set, keep, *SECRET)
    assert keep.tolist() == [False] * 4 + [True] * 2


def h_of(key: int, state: np.ndarray) -> np.uint64:
    return U8(hash_of(U8(key), state))


def full_slots() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns a table whose slots are all taken, by one key."""
    state = new_table_state(5)
    slots, words = np.zeros(2 << 5, U8), np.zeros(8, U8)
    slots[:] = 77
    return slots, words, state


def test_a_walk_ends_where_the_slots_do() -> None:
    slots, words, state = full_slots()
    before = slots.copy(), words.copy(), state.copy()
    for home in (0, 31, 32, 1_000):
        assert find(slots, home, U8(5)) == -1
    for key in range(200):
        assert find_or_add(slots, words, state, U8(key), h_of(key, state), U8(1)) == (
            -1 if key != 77 else home_of(h_of(77, state), U8(59), state[1])
        )
    for kept, now in zip(before, (slots, words, state), strict=True):
        assert (kept == now).all()


def test_a_gap_is_closed_with_nothing_from_after_the_array() -> None:
    state = new_table_state(5)
    last = [key for key in range(4_000) if home_of(h_of(key, state), U8(59), 32) == 31][:3]
    memory, words = np.zeros(2 * 40, U8), np.zeros(8, U8)
    slots = memory[: 2 * 33]
    for key in last[:2]:
        assert find_or_add(slots, words, state, U8(key), h_of(key, state), U8(1)) >= 0
    # What follows in memory would belong into the gap.
    memory[2 * 33 : 2 * 34] = last[2], 1
    erase(slots, words, state, 32)
    assert slots[2 * 31 :].tolist() == [last[0], 1, 0, 0]
    assert memory[2 * 33 : 2 * 34].tolist() == [last[2], 1]


def test_a_doubling_ends_where_the_slots_do() -> None:
    slots, words, state = np.full(2 << 6, 77, U8), np.zeros(8, U8), new_table_state(5)
    stretch(slots, words, state, 16)
    assert find(slots, 0, U8(5)) == -1


def full_terms() -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Returns terms whose buckets are all full and say that more follow, and a term after them."""
    state = new_table_state(1)
    memory = np.zeros(BUCKET_WORDS * 3, U8)
    words = memory[: BUCKET_WORDS * 2]
    key = next(k for k in range(5_000, 5_100) if not U8(hash_of_term(U8(k), state)) >> U8(63))
    for bucket in range(3):
        memory[BUCKET_WORDS * bucket : BUCKET_WORDS * bucket + 5] = 1_000 + bucket
        memory.view(I4)[16 * bucket + 10 : 16 * bucket + 16] = [1, 1, 1, 1, 1, -1]
    memory[BUCKET_WORDS * 2] = key
    return memory, words, state, key


def test_a_walk_over_terms_ends_where_the_buckets_do() -> None:
    memory, words, state, key = full_terms()
    values = words.view(I4)
    assert find_term(words, values, 0, U8(key)) == -1
    found = np.empty(1, I4)
    look_up_ids(words, values, state, np.array([key], U8), found)
    assert found.tolist() == [1]
    after = memory[BUCKET_WORDS * 2 :].copy()
    erase_term(words, values, state, 16 + 10)
    assert (memory[BUCKET_WORDS * 2 :] == after).all()
    assert key not in words


def test_a_doubling_of_terms_ends_where_the_buckets_do() -> None:
    words, state = np.zeros(BUCKET_WORDS * 5, U8), new_table_state(1)
    words.view(I4)[15::16] = -1
    assert stretch_terms(words, words.view(I4), state, 1) == 1


@pytest.mark.parametrize("short", ["slots", "filter"])
def test_a_doubling_without_room_changes_nothing(short: str) -> None:
    state = new_table_state(5)
    # Enough for twenty keys in any places, and not for twice as many homes.
    slots, words = np.zeros(2 * (32 + 20), U8), np.zeros(5, U8)
    for key in range(20):
        assert find_or_add(slots, words, state, U8(key), h_of(key, state), U8(1)) >= 0
    if short == "filter":
        slots = np.concatenate([slots, np.zeros(2 * slots_needed(state, 0), U8)])
        words = words[:4].copy()
    before = slots.copy(), words.copy(), state.copy()
    assert stretch(slots, words, state, 16) == -1
    for kept, now in zip(before, (slots, words, state), strict=True):
        assert (kept == now).all()


def new_terms(buckets: int) -> list[np.ndarray]:
    words = np.zeros(BUCKET_WORDS * buckets, U8)
    return [words, words.view(I4), new_table_state(1)]


def test_ids_continue_where_they_stopped_and_count_each_use_once() -> None:
    table = new_terms(2)
    ids_state, free = np.array([0, 2], I8), np.zeros(64, I4)
    hashes_by_id, uses, seen = np.zeros(64, U8), np.zeros(64, I4), np.zeros(64, I4)
    levels = np.zeros(64, np.uint16)
    by_id = ids_state, free, hashes_by_id, uses
    keys = np.array([7, 7, *range(20, 30), 7], U8)
    out = np.zeros(len(keys), I4)
    done = acquire_ids(*table, *by_id, keys, 0, out)
    # Two buckets of five, and nothing after them, for eleven terms.
    assert 6 <= done <= 11
    assert uses[2 : done + 1].tolist() == [2] + [1] * (done - 2)
    assert ids_state.tolist() == [0, done + 1]
    assert stretch_terms(*table, 1) == -1
    longer = np.zeros(BUCKET_WORDS * buckets_needed(table[2], 10), U8)
    longer[: len(table[0])] = table[0]
    table = [longer, longer.view(I4), table[2]]
    assert acquire_ids(*table, *by_id, keys, done, out) == len(keys)
    assert out.tolist() == [2, 2, *range(3, 13), 2]
    assert uses[2:13].tolist() == [3] + [1] * 10
    found = np.empty(len(keys), I4)
    look_up_ids(*table, keys, found)
    assert found.tolist() == out.tolist()
    assert stretch_terms(*table, 1) == 1
    look_up_ids(*table, keys, found)
    assert found.tolist() == out.tolist()
    # Unassigned ids are skipped and counted.
    wrong = np.array([-1, 1, 13, 63, 64, 1 << 30], I4)
    before = [each.copy() for each in (longer, *by_id)]
    assert release_ids(*table, *by_id, levels, seen, wrong) == -1
    assert all((one == two).all() for one, two in zip(before, (longer, *by_id), strict=True))
    assert release_ids(*table, *by_id, levels, seen, out) == 0
    assert not longer.any()
    assert ids_state[0] == 11


def test_columns_of_ids_that_are_too_short_stop_it_as_well() -> None:
    table = new_terms(8)
    by_id = np.array([0, 2], I8), np.zeros(4, I4), np.zeros(4, U8), np.zeros(4, I4)
    out = np.zeros(5, I4)
    assert acquire_ids(*table, *by_id, np.arange(5, dtype=U8), 0, out) == 2
    assert by_id[0].tolist() == [0, 4]
    assert by_id[3].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("keys_count", [1, 31, 32, 33, 64, 65])
def test_postings_continue_where_slots_were_too_short(keys_count: int) -> None:
    keys = np.arange(100, 100 + keys_count, dtype=U8)
    owners = np.zeros(keys_count, I4)
    template = np.zeros(POSTING_WORDS, I4)
    state, blocks = new_table_state(5), new_block_state()
    slots, words = np.zeros(2 * 8, U8), np.zeros(8, U8)
    postings = np.zeros(POSTING_WORDS * 2 * keys_count, I4)
    at, rounds = 0, 0
    while at < keys_count:
        done = post(
            *(slots, words, state, blocks, postings, template, keys, owners, at, keys_count)
        )
        assert at <= done <= keys_count
        longer = np.zeros(len(slots) + 8, U8)
        longer[: len(slots)] = slots
        slots, at, rounds = longer, done, rounds + 1
        assert rounds < 200
    assert state[2] == keys_count
    free = np.full(1, STATE_FREE, np.uint8)
    unknown = np.array([1, *keys, 5_000], U8)
    assert unpost(slots, words, state, blocks, postings, free, unknown) == -1
    assert state[2] == 0
    assert not slots.any()
    assert not words[: (1 << 5) >> FILTER_SHIFT].any()


def test_blocks_of_no_class_and_of_full_arrays_are_refused() -> None:
    state, words = new_block_state(), np.zeros(8, I4)
    before = state.copy()
    for size_class in (4, 31, 32, 33, 63):
        assert take_block(state, words, 1, size_class) == -1
    assert (state == before).all()
    assert take_block(state, words, 1, 3) == 0
    assert take_block(state, words, 1, 0) == -1


def test_terms_without_room_and_ranks_of_missing_terms_are_reported() -> None:
    hashes, codes = np.zeros(4, U8), np.zeros(4, np.uint16)
    terms = np.arange(5, dtype=U8)
    numbers = np.arange(1, 6, dtype=np.uint16)
    assert put_codes(terms[:4], numbers[:4], hashes, codes, *SECRET) == 0
    assert put_codes(terms[4:], numbers[4:], hashes, codes, *SECRET) == -1
    assert rank_terms(terms, np.arange(1, 6, dtype=U8), np.empty(5, np.uint32), *SECRET) == -1


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1_024, 1_025, 4_097])
def test_sealing_numbers_terms_at_its_doublings(count: int) -> None:
    terms = np.tile(np.arange(count, dtype=U8) << U8(40), 2)
    numbers = np.empty(len(terms), np.uint32)
    distinct = number_terms(terms, numbers, *SECRET)
    assert distinct.tolist() == terms[:count].tolist()
    assert numbers.tolist() == list(range(count)) * 2
    ranks = np.empty(count, np.uint32)
    assert rank_terms(distinct[::-1].copy(), np.sort(distinct), ranks, *SECRET) == 0
    assert ranks.tolist() == list(range(count))[::-1]


def test_what_had_to_succeed_and_did_not_is_an_error_of_its_own() -> None:
    assert required(np.int64(3), "three") == 3
    with pytest.raises(KernelError, match="nothing"):
        required(-1, "nothing")
