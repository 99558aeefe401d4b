"""Keys chosen for their hashes cost as much as others, and break nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sirocco.index.base.handle_table import HandleTable
from sirocco.index.base.row_table import RowTable
from sirocco.index.routing.keyword_slots import KeywordSlots
from sirocco.index.standing.posting_table import PostingTable
from sirocco.index.standing.vocabulary import Vocabulary
from sirocco.index.store.term_codes import TermCodes
from sirocco.kernels.base.hash_placement import _drawn, fixed_secret, secret
from sirocco.kernels.routing.routing import fill_child_table, fill_keyword_table
from sirocco.kernels.standing.pyramid import POSTING_WORDS
from sirocco.kernels.store.ranked_prune import _group
from sirocco.kernels.store.slice_seal import number_terms, rank_terms
from sirocco.kernels.store.sliding_term_counts import _count_found
from sirocco.kernels.store.terms_count import add_row_terms
from sirocco.model.patterns import PatternTable
from tests.fuzz.chosen_keys import FAMILIES, Keys, drawn
from tests.support.cpu_time import cpu_ratio

ROOT = Path(__file__).resolve().parents[4]
COUNT = 20_000
# Where steps show in time alone: some thousand a key, instead of one or two.
COUNT_TIMED = 5_000

# Greatest cost of chosen keys, as a multiple of that of random keys.
FACTOR_MAX = 3.0


def crowding(is_taken: NDArray[np.bool_]) -> float:
    """Returns the sum of squares of runs of taken places: the cost to fill them one by one."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_taken, [0]]).astype(np.int8)))
    runs = edges[1::2] - edges[::2]
    return float((runs.astype(np.float64) ** 2).sum()) + 1.0


def of_handle_table(keys: Keys) -> NDArray[np.bool_]:
    table = HandleTable()
    table.put(keys, np.arange(len(keys), dtype=np.int32))
    assert table.get(keys).tolist() == list(range(len(keys)))
    return table._table[1] != 0


def of_row_table(keys: Keys) -> NDArray[np.bool_]:
    table = RowTable()
    table.put(keys, np.arange(len(keys), dtype=np.int32))
    assert table.get(keys, keys).tolist() == list(range(len(keys)))
    return table._places != 0


def of_keyword_slots(keys: Keys) -> NDArray[np.bool_]:
    table = KeywordSlots(1, len(keys))
    assert table.add(keys, np.ones((len(keys), 1), np.uint64)).all()
    assert len(table) == len(keys)
    return table._terms != 0


def of_vocabulary(keys: Keys) -> NDArray[np.bool_]:
    table = Vocabulary()
    ids = table.acquire(keys)
    assert np.array_equal(table.look_up(keys), ids)
    return table._values[15::16] != 0


def of_posting_table(keys: Keys) -> NDArray[np.bool_]:
    table = PostingTable(0)
    table.post(np.zeros(POSTING_WORDS, np.int32), keys, np.zeros(len(keys), np.int32))
    assert table.keys == len(keys)
    return table.slots[1::2] != 0


def of_term_codes(keys: Keys) -> NDArray[np.bool_]:
    table = TermCodes()
    assert table.use(keys, np.full(len(keys), -1, np.int64)).all()
    return table.table_codes != 0


def of_tally(keys: Keys) -> NDArray[np.bool_]:
    places = np.empty(1 << 16, np.uint64), np.zeros(1 << 16, np.int64)
    offsets, rows = np.array([0, len(keys)]), np.zeros(1, np.int64)
    assert add_row_terms(offsets, keys, rows, *places, *secret()) == len(keys)
    return places[1] != 0


def of_hot_counts(keys: Keys) -> NDArray[np.bool_]:
    counts = np.zeros(1 << 16, np.int32)
    nothing, found = np.empty(0, np.uint8), np.empty(1 << 16, np.uint64)
    lookup = nothing, found, counts, keys, *secret()
    assert _count_found(keys, len(keys), lookup, np.int64(0)) == len(keys)
    return counts != 0


def of_child_table(keys: Keys) -> NDArray[np.bool_]:
    children = np.full(1 << 16, -1, np.int32)
    own, terms = np.zeros(len(keys), np.int32), np.zeros(1 << 16, np.uint64)
    assert fill_child_table(keys, own, *secret(), terms, children) == 0
    return children >= 0


def of_keyword_table(keys: Keys) -> NDArray[np.bool_]:
    filled, held = np.zeros(1 << 16, np.uint8), np.zeros(1 << 16, np.uint8)
    shares, terms = np.zeros((1 << 16, 3)), np.zeros(1 << 16, np.uint64)
    own = keys, np.zeros((len(keys), 3)), np.zeros(len(keys), np.uint8)
    assert fill_keyword_table(*own, *secret(), terms, filled, shares, held) == 0
    return filled != 0


def of_pattern_tree(keys: Keys) -> NDArray[np.bool_]:
    numbers = {str(number): key for number, key in enumerate(keys[:2_000].tolist())}
    table = PatternTable(
        lambda words: np.array([numbers.get(word, len(word)) for word in words], np.uint64)
    )
    table.add([f'"{word} {word}"' for word in numbers])
    return table._places[:, 1] != 0


TABLES: tuple[Callable[[Keys], NDArray[np.bool_]], ...] = (
    of_handle_table,
    of_row_table,
    of_keyword_slots,
    of_vocabulary,
    of_posting_table,
    of_term_codes,
    of_tally,
    of_hot_counts,
    of_child_table,
    of_keyword_table,
    of_pattern_tree,
)


@pytest.mark.parametrize("of_table", TABLES, ids=lambda each: each.__name__)
def test_chosen_keys_crowd_no_more_than_others(
    of_table: Callable[[Keys], NDArray[np.bool_]],
) -> None:
    by_chance = crowding(of_table(drawn(COUNT, 1)))
    for family in FAMILIES:
        chosen = crowding(of_table(family(COUNT)))
        assert chosen <= FACTOR_MAX * by_chance + 1_000, family.__name__


def test_no_secret_leaves_even_steps_of_words_in_few_places() -> None:
    # These crowded them to 95 and to 9 times the cost when their hash was of one product.
    secrets = (
        (6375444715401855555, 13623823943204830861),
        (17017899380770437519, 13146031848058389789),
    )
    for first, second in secrets:
        with fixed_secret(first, second):
            by_chance = crowding(of_pattern_tree(drawn(COUNT, 1)))
            for family in FAMILIES:
                chosen = crowding(of_pattern_tree(family(COUNT)))
                assert chosen <= 1.5 * by_chance, family.__name__


def seal(keys: Keys) -> None:
    distinct = number_terms(keys, np.empty(len(keys), np.uint32), *secret())
    assert len(distinct) == len(keys)
    ranks = np.empty(len(keys), np.uint32)
    assert rank_terms(distinct, np.sort(distinct), ranks, *secret()) == 0


def group(keys: Keys) -> None:
    groups = np.empty(len(keys), np.int64)
    assert len(_group(keys.astype(np.int64), 1, len(keys), groups, *secret())) == len(keys)


@pytest.mark.parametrize("work", [seal, group], ids=lambda each: each.__name__)
def test_chosen_keys_take_no_longer_in_tables_that_nobody_sees(
    work: Callable[[Keys], None],
) -> None:
    by_chance = drawn(COUNT_TIMED, 1)
    for family in FAMILIES:
        chosen = family(COUNT_TIMED)
        ratio = cpu_ratio(lambda: work(chosen), lambda: work(by_chance), 3)  # noqa: B023
        assert ratio < 10, family.__name__


def test_each_process_draws_its_secret() -> None:
    drawn_words = {int(word) for _ in range(4) for word in _drawn()}
    assert len(drawn_words) == 8
    assert not drawn_words & {int(word) for word in secret()}
    assert all(word & 1 for word in drawn_words)


def test_chosen_terms_share_no_bucket_of_counts() -> None:
    codes = TermCodes()
    for family in FAMILIES:
        counts = np.bincount(codes.bucket_of(family(COUNT)), minlength=512)
        assert counts.max() <= FACTOR_MAX * counts.mean(), family.__name__


def test_contents_of_a_table_do_not_reveal_its_secret() -> None:
    keys = drawn(500, 2)
    reported = []
    for known in ((3, 5), (0xF00D | 1, (1 << 63) | 1)):
        with fixed_secret(*known):
            handles, rows, words = HandleTable(), RowTable(), KeywordSlots(1, 1_000)
        handles.put(keys, np.arange(500, dtype=np.int32))
        rows.put(keys, np.arange(500, dtype=np.int32))
        words.add(keys, np.ones((500, 1), np.uint64))
        reported.append([*handles.items(), rows.rows(), *words.items()])
    for one, other in zip(*reported, strict=True):
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("size", [0, 1, 2, 31, 32, 33, 95, 96, 97, 127, 128, 129, 1_023, 1_025])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda each: each.__name__)
def test_a_vocabulary_of_any_size_gives_each_term_one_id(
    size: int, family: Callable[[int], Keys]
) -> None:
    words = Vocabulary()
    keys = family(size)
    ids = words.acquire(np.concatenate([keys, keys[: size // 2]]))
    assert ids[:size].tolist() == list(range(2, size + 2))
    assert ids[size:].tolist() == ids[: size // 2].tolist()
    assert words.uses[2 : size + 2].tolist() == [2] * (size // 2) + [1] * (size - size // 2)
    assert words.look_up(keys).tolist() == ids[:size].tolist()
    words.release(ids)
    assert len(words) == 0
    assert not words._words.array.any()
    assert words.look_up(keys).tolist() == [1] * size


# As clients would send them; each crashed the process before, so each runs in a process of its own.
WORDS = """
import numpy as np
from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.range_index import RangeIndex
from tests.fuzz.chosen_keys import of_folded_products_with_equal_top
words = of_folded_products_with_equal_top(2_100)
index = RangeIndex()
world = np.array([[-180.0, -90.0, 180.0, 90.0]])
for k in range(3):
    own = words[700 * k : 700 * (k + 1)]
    index.insert(QueryRows.of_boxes(world, np.array([0, 700]), own), k)
held = np.sort(words[:700])
found = index.match(
    np.zeros(1), np.zeros(1), np.array([0, 700]), held, np.zeros(1, np.int64), np.full(1, 9)
)
assert found.query_rows.tolist() == [0], found
for row in range(3):
    index.remove(np.array([row], np.int32), 10)
assert index.reclaim(11) == 3
assert len(index.vocabulary) == 0
print("well")
"""

RECTANGLES = """
import numpy as np
from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.range_index import Grid, RangeIndex
from tests.fuzz.chosen_keys import crowded_cells
index = RangeIndex(Grid(finest_level=12))
columns, rows = crowded_cells(5_119, 10)
west = -180.0 + (columns + 0.5) * (360.0 / 1024)
south = -90.0 + (rows + 0.5) * (180.0 / 1024)
boxes = np.stack([west, south, west + 1e-9, south + 1e-9], axis=1)
none = QueryRows.of_boxes(boxes, np.zeros(5_120, np.int64), np.empty(0, np.uint64))
own = index.insert(none, 0)
found = index.match(
    west, south, np.zeros(5_120, np.int64), np.empty(0, np.uint64),
    np.zeros(5_119, np.int64), np.ones(5_119, np.int64),
)
assert found.query_rows.tolist() == own.tolist()
index.remove(own, 2)
assert index.reclaim(3, 10_000) == 5_119
assert index.statistics().keys == 0
print("well")
"""


@pytest.mark.parametrize("program", [WORDS, RECTANGLES], ids=["words", "rectangles"])
def test_what_a_client_chose_ends_no_process(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr[-2_000:]
