"""Tables and indexes against dictionaries and sums, under keys chosen for their hashes.

A run is a seed: its draws, and so its findings, are the same each time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.handle_table import HandleTable
from sirocco.index.base.query_rows import QueryRows
from sirocco.index.base.row_table import RowTable
from sirocco.index.routing.keyword_slots import KeywordSlots
from sirocco.index.standing.posting_table import PostingTable
from sirocco.index.standing.range_index import Grid, RangeIndex
from sirocco.index.standing.vocabulary import Vocabulary
from sirocco.index.store.term_codes import TermCodes
from sirocco.kernels.standing.pyramid import POSTING_WORDS, STATE_FREE, STATE_PLAIN
from sirocco.kernels.store.slice_seal import number_terms, rank_terms
from sirocco.kernels.text.utf8 import mark_invalid_utf8
from tests.fuzz.chosen_keys import FAMILIES, Keys, crowded_cells, drawn

Scalar = TypeVar("Scalar", bound=np.generic)

SIZES = (0, 1, 2, 31, 32, 33, 127, 128, 129, 255, 256, 257, 1_023, 1_024, 1_025, 3_000)
"""About the borders of groups, doublings and steps of them."""

EXTREMES = np.array([0, 1, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 1], np.uint64)


def keys_of(dice: Random) -> Keys:
    """Returns different keys, in any order."""
    count = dice.choice(SIZES)
    parts = [dice.choice(FAMILIES)(count), drawn(dice.choice(SIZES), dice.getrandbits(32))]
    if dice.random() < 0.5:
        parts.append(EXTREMES)
    keys = np.unique(np.concatenate(parts))
    return np.random.default_rng(dice.getrandbits(32)).permutation(keys)


def some_of(keys: NDArray[Scalar], dice: Random) -> NDArray[Scalar]:
    """Returns a stretch of keys."""
    ends = sorted((dice.randint(0, len(keys)), dice.randint(0, len(keys))))
    return keys[ends[0] : ends[1]]


def handles(dice: Random) -> None:
    """Adds and drops handles; the content is that of a dictionary."""
    keys, table = keys_of(dice), HandleTable(dice.choice([0, 5_000]))
    known: dict[Any, Any] = {}
    for _ in range(6):
        own = some_of(keys, dice)
        if dice.random() < 0.6:
            rows = np.arange(len(own), dtype=np.int32)
            table.put(own, rows)
            known.update(zip(own.tolist(), rows.tolist(), strict=True))
        else:
            table.drop(own)
            for key in own.tolist():
                known.pop(key, None)
        assert table.get(keys).tolist() == [known.get(key, -1) for key in keys.tolist()]
    assert dict(zip(*(each.tolist() for each in table.items()), strict=True)) == known


def rows(dice: Random) -> None:
    """Does the same as `handles`, for the table whose keys are a column."""
    keys, table = keys_of(dice), RowTable()
    known: dict[Any, Any] = {}
    for _ in range(6):
        own = some_of(np.arange(len(keys), dtype=np.int32), dice)
        if dice.random() < 0.6:
            table.put(keys, own)
            known.update((row, row) for row in own.tolist())
        else:
            table.drop(keys, keys[own])
            for row in own.tolist():
                known.pop(row, None)
        assert table.get(keys, keys).tolist() == [known.get(row, -1) for row in range(len(keys))]
    assert table.rows().tolist() == sorted(known)


def keywords(dice: Random) -> None:
    """Tests keywords and their slots, also beyond the limit of keywords."""
    keys = keys_of(dice)
    keys = keys[keys != 0]
    table = KeywordSlots(1, dice.choice([10, 1_000, 100_000]))
    sets = np.array([1 << dice.randrange(63) for _ in keys], np.uint64)
    fresh = table.add(keys, sets.reshape(-1, 1))
    assert len(fresh) == len(keys)
    offsets = np.arange(len(keys) + 1, dtype=np.int64)
    slots = np.array([int(own).bit_length() - 1 for own in sets], np.int32)
    keep = np.zeros(len(keys), np.bool_)
    table.mark_wanted(offsets, keys, np.arange(len(keys), dtype=np.int32), slots, keep)
    assert keep.all()


def vocabulary(dice: Random) -> None:
    """Acquires and releases terms; each in use has an id of its own."""
    keys, words = keys_of(dice), Vocabulary()
    uses: dict[int, int] = {}
    ids: dict[int, int] = {}
    for _ in range(8):
        own = np.concatenate([some_of(keys, dice), some_of(keys, dice)])
        if dice.random() < 0.6:
            given = words.acquire(own)
            for key, term_id in zip(own.tolist(), given.tolist(), strict=True):
                assert ids.setdefault(key, term_id) == term_id
                uses[key] = uses.get(key, 0) + 1
        else:
            removed = [key for key in set(own.tolist()) if key in uses]
            words.release(np.array([ids[key] for key in removed], np.int32))
            for key in removed:
                uses[key] -= 1
                if not uses[key]:
                    del uses[key], ids[key]
        assert len(words) == len(ids) == len(set(ids.values()))
        assert words.look_up(keys).tolist() == [ids.get(key, 1) for key in keys.tolist()]


def postings(dice: Random) -> None:
    """Fills and empties lists; a table without postings is empty."""
    keys = keys_of(dice)
    table = PostingTable(dice.choice([0, 1_000]))
    states = np.full(2, STATE_PLAIN, np.uint8)
    templates = np.zeros((2, POSTING_WORDS), np.int32)
    templates[1, 6] = 1
    for row in (0, 1):
        owners = np.full(len(keys), row, np.int32)
        table.post(templates.ravel(), keys, owners)
        assert table.keys == len(keys)
    states[1] = STATE_FREE
    table.unpost(keys, states)
    assert table.keys == len(keys)
    states[0] = STATE_FREE
    table.unpost(keys, states)
    assert table.keys == 0
    assert not table.slots.any()
    assert not table.filter_words.any()


def codes(dice: Random) -> None:
    """Tests numbers of terms, with those of buckets beyond the limit."""
    keys, numbered = keys_of(dice), TermCodes(dice.choice([600, 1_000, 1 << 16]))
    for _ in range(3):
        given = np.full(len(keys), -1, np.int64)
        has = numbered.use(keys, given)
        assert numbered.hashes(given[has].astype(np.uint16)).tolist() == keys[has].tolist()
        numbered.release(given[has].astype(np.uint16))
        keys = keys_of(dice)


def sealing(dice: Random) -> None:
    """Numbers the terms of a slice in order of appearance."""
    keys = keys_of(dice)
    terms = np.concatenate([keys, some_of(keys, dice)])
    numbers = np.empty(len(terms), np.uint32)
    own = np.uint64(dice.getrandbits(64) | 1), np.uint64(dice.getrandbits(64) | 1)
    distinct = number_terms(terms, numbers, *own)
    assert distinct.tolist() == keys.tolist()
    assert distinct[numbers].tolist() == terms.tolist()
    ranks = np.empty(len(distinct), np.uint32)
    assert rank_terms(distinct, np.sort(distinct), ranks, *own) == 0
    assert np.sort(distinct)[ranks].tolist() == distinct.tolist()


def ranges(dice: Random) -> None:
    """Matches, removes and reclaims tiny rectangles in crowded cells with chosen terms."""
    level = dice.choice([4, 6, 8])
    count = min(dice.choice(SIZES), 1 << 2 * level)
    if count == 0:
        return
    columns, lines = crowded_cells(count, level)
    west = np.minimum(columns * (360.0 / (1 << level)) - 180.0, 180.0)
    south = np.minimum(lines * (180.0 / (1 << level)) - 90.0, 90.0)
    boxes = np.stack([west, south, west, south], axis=1)
    terms = dice.choice(FAMILIES)(count) if dice.random() < 0.6 else np.empty(0, np.uint64)
    offsets = np.arange(count + 1) if len(terms) else np.zeros(count + 1, np.int64)
    index = RangeIndex(Grid(finest_level=dice.choice([level, 12])))
    half = count // 2
    parts = [
        QueryRows.of_boxes(boxes[own], offsets[own.start : own.stop + 1] - offsets[own.start],
                           terms[offsets[own.start] : offsets[own.stop]])
        for own in (slice(0, half), slice(half, count))
    ]  # fmt: skip
    own = np.concatenate([index.insert(part, 0) for part in parts])
    found = index.match(
        west, south, offsets, terms, np.zeros(count, np.int64), np.ones(count, np.int64)
    )
    pairs = set(zip(found.object_rows.tolist(), own.argsort()[found.query_rows], strict=True))
    assert {(number, number) for number in range(count)} <= pairs
    index.remove(own, 2)
    assert index.reclaim(3, count) == count
    assert index.statistics().keys == index.statistics().terms == 0


def bytes_of_texts(dice: Random) -> None:
    """Checks that any bytes are either UTF-8, as Python decides, or marked."""
    texts = []
    for _ in range(dice.choice([1, 7, 64])):
        text = "".join(chr(dice.choice([65, 0x7FF, 0x1F600, 0x301, 0x4E00])) for _ in range(9))
        data = bytearray(text.encode())
        if dice.random() < 0.5:
            data[dice.randrange(len(data))] = dice.randrange(256)
        texts.append(bytes(data[: dice.randrange(len(data) + 1)]))
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    invalid = np.empty(len(texts), np.bool_)
    marked = mark_invalid_utf8(np.frombuffer(b"".join(texts), np.uint8), offsets, invalid)
    expected = [text.decode(errors="replace").encode() != text for text in texts]
    assert invalid.tolist() == expected
    assert marked == sum(expected)


WORKS: tuple[Callable[[Random], None], ...] = (
    handles,
    rows,
    keywords,
    vocabulary,
    postings,
    codes,
    sealing,
    ranges,
    bytes_of_texts,
)
