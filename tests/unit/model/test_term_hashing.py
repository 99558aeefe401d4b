"""Numbers of terms under a secret key: of words, of texts, and which of them are trusted."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.kernels.base.keyed_hash import KEY_WORDS, keyed_hash_spans
from sirocco.model.objects import pack_bytes
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import term_hash, tokens_of
from tests.collisions import FOUND, PAIRS, ZEROS

KEYED = TermHashing("000102030405060708090a0b0c0d0e0f")
_MASK = (1 << 64) - 1


def of_a_word(word: bytes, key: list[int]) -> int:
    """Returns the hash by its definition."""
    if len(word) > 128:
        return sip_1_3(word, key[0], key[1])
    total = 0
    for i in range(0, len(word), 8):
        x = int.from_bytes(word[i : i + 8], "little")
        a = key[2 + i // 4] | key[3 + i // 4] << 64
        total += (a * x & (1 << 128) - 1) >> 64
    return total & _MASK


def sip_1_3(data: bytes, key_0: int, key_1: int) -> int:
    """Computes SipHash-1-3, line by line as in the paper."""

    def turned(x: int, by: int) -> int:
        return (x << by | x >> (64 - by)) & _MASK

    v = [
        key_0 ^ 0x736F6D6570736575,
        key_1 ^ 0x646F72616E646F6D,
        key_0 ^ 0x6C7967656E657261,
        key_1 ^ 0x7465646279746573,
    ]

    def turn() -> None:
        v[0] = (v[0] + v[1]) & _MASK
        v[1] = turned(v[1], 13) ^ v[0]
        v[0] = turned(v[0], 32)
        v[2] = (v[2] + v[3]) & _MASK
        v[3] = turned(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & _MASK
        v[3] = turned(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & _MASK
        v[1] = turned(v[1], 17) ^ v[2]
        v[2] = turned(v[2], 32)

    whole = len(data) // 8 * 8
    last = data[whole:] + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for block in [*(data[i : i + 8] for i in range(0, whole, 8)), last]:
        word = int.from_bytes(block, "little")
        v[3] ^= word
        turn()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        turn()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def test_the_kernel_follows_the_definition_at_every_length() -> None:
    rng = np.random.default_rng(7)
    key = rng.integers(0, 1 << 64, KEY_WORDS, np.uint64)
    words = [rng.integers(1, 256, length, np.uint8).tobytes() for length in range(1, 300)]
    data, offsets = pack_bytes(words)
    found = np.empty(len(words), np.uint64)
    keyed_hash_spans(np.concatenate([data, np.zeros(8, np.uint8)]), offsets, key, found)
    assert found.tolist() == [of_a_word(word, key.tolist()) for word in words]


def test_words_of_one_hash_on_the_wire_have_two_numbers() -> None:
    for one, colliding in (*PAIRS, ("fire", FOUND["fire"])):
        assert term_hash(one) == term_hash(colliding)
        first, second = KEYED.numbers([one, colliding]).tolist()
        assert first != second
    assert KEYED.numbers(ZEROS).all()


@pytest.mark.parametrize("hashing", [KEYED, WIRE_TERMS])
def test_texts_have_the_numbers_of_their_words(hashing: TermHashing) -> None:
    long = "x" * 129
    texts = ["", "Fire, FIRE in the ground-floor café", f"e\u0301te {long} {long}y", "a" * 8]
    columns = hashing.tokens(*pack_bytes([text.encode() for text in texts]))
    for row, text in enumerate(texts):
        begin, end = columns.offsets[row : row + 2].tolist()
        words = tokens_of(text)
        numbers = dict(zip(words, hashing.numbers(words).tolist(), strict=True))
        assert columns.terms[begin:end].tolist() == sorted(set(numbers.values()))
        assert columns.lengths[row] == len(words)
        counts = [words.count(word) for word, _ in sorted(numbers.items(), key=lambda p: p[1])]
        assert columns.counts[begin:end].tolist() == counts


def test_a_secret_makes_the_same_numbers_everywhere_and_is_not_shown() -> None:
    drawn = TermHashing("1f" * 16)
    other = TermHashing(drawn.secret)
    words = ["fire", "coffee"]
    assert other.numbers(words).tolist() == drawn.numbers(words).tolist()
    assert other.id == drawn.id != KEYED.id
    assert drawn.secret not in repr(drawn)
    assert (WIRE_TERMS.id, WIRE_TERMS.is_keyed) == (0, False)
    with pytest.raises(ValueError, match="needs 16"):
        TermHashing("abcd")


def test_numbers_are_spread_evenly_however_similar_the_words() -> None:
    # Tables and buckets use a few of their bits.
    words = [f"w{number}" for number in range(1 << 14)]
    numbers = KEYED.numbers(words)
    assert len(np.unique(numbers)) == len(words)
    for shift in (0, 26, 54):
        counts = np.bincount((numbers >> np.uint64(shift)).astype(np.int64) & 0x3FF, minlength=1024)
        # 16 are expected in each.
        assert counts.max() < 64
        assert counts.min() > 0
