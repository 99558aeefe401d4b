"""The strings that tests use as collisions do collide, and the search for them works."""

from __future__ import annotations

import xxhash

from sirocco.model.query import query_handle
from sirocco.model.text import term_hash, tokens_of
from tests.collisions import FOUND, PAIRS, ZEROS, short_pairs


def test_the_strings_that_were_found_collide() -> None:
    for one, other in [*FOUND.items(), *PAIRS]:
        assert one != other
        assert xxhash.xxh3_64_intdigest(one.encode()) == xxhash.xxh3_64_intdigest(other.encode())
        assert query_handle(one) == query_handle(other)
    assert [term_hash(word) for word in ZEROS] == [0] * len(ZEROS)


def test_words_are_single_terms() -> None:
    words = [*ZEROS, *(word for pair in PAIRS for word in pair), "fire", FOUND["fire"]]
    assert [list(tokens_of(word)) for word in words] == [[word] for word in words]


def test_short_pairs_are_found_again() -> None:
    printable = "".join(chr(code) for code in range(33, 127))
    (pair,) = short_pairs(1, seed=3, letters=printable)
    assert len({xxhash.xxh3_64_intdigest(each.encode()) for each in pair}) == 1
    assert sorted(map(len, pair)) == [7, 8]
