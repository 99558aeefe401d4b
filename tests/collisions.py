"""Builds strings that share an xxh3-64 hash.

The hash is public and unkeyed. For inputs of 33 to 64 bytes it is the finish of a sum of four
terms, one for each 16 bytes. Undoing the finish gives the sum that a target needs,
and four lists of candidate terms, joined in two steps (D. Wagner, A Generalized Birthday Problem,
CRYPTO 2002), give a string of chosen characters with that sum within some seconds.

`FOUND`, `ZEROS` and `PAIRS` hold precomputed strings for tests.
"""

from __future__ import annotations

import numpy as np
import xxhash
from numpy.typing import NDArray

# A name → another one with the same hash. The first is an id of the tenant `acme`, the second one
# of the tenant `evil`; the words are terms as written.
FOUND = {
    "acme:orders": "evil:9rjd4z8jyy7s4908q9qlzr9vll3euoi1gvcavo2b17f62kow54bz77ci1j0",
    "fire": "86hrb2a0cvys5z8tqd69pz18biwis6n489fac7lkuzqqx71bef6v9klq9u8tnkry",
}

# Words and ids whose hash is 0, which tables use for "none".
ZEROS = ("515j7s645i5b7q1qbbfo895ohpeftzmo4l2wqkzczh99wtxi1peyesyyh8ec1lxd",)

# Two values of the member `bus` with one hash (`contract.track_values.hash_of`).
BUSES = ("van", "9cgj1ss1a5u9w00im67kdkptyeotazraxldn7cj68yjwo3pk82ssct")

# Words of 7 and of 8 letters with the same hash.
PAIRS = (
    ("9rlepoi", "igy07hin"),
    ("d573y0z", "l4dfkif5"),
    ("h94q8e2", "vec6rno2"),
    ("bxt8ct0", "3sh4j4i2"),
    ("l8cnmg4", "a2709z2z"),
    ("ypmq0hu", "vnj5vc5v"),
    ("h1dloc5", "g3045z4g"),
    ("6ux4qd7", "g25w8lpp"),
    ("v555s3h", "z4rlagc3"),
    ("doochso", "kd9t5xlc"),
    ("j17w9b8", "vef6til8"),
    ("og52i0k", "89vkeb7x"),
    ("krg5lgr", "zu1uaqg3"),
    ("6jabnqa", "8n2r9uov"),
    ("k55q9o7", "rba5snh6"),
    ("r5sffy7", "s5141q8o"),
)

# Letters and digits: a string of them is one word of a text, and a valid id.
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"

LENGTH = 64
_LANE = 16

# The first 128 bytes of the default secret (doc/xxhash_spec.md, version 0.2.0).
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
)
_PRIME64_1 = 0x9E3779B185EBCA87
_PRIME_MX1 = 0x165667919E3779F9
_MASK = (1 << 64) - 1

# Candidates of each lane. The first joins fix so many bits that as many pairs remain as there were
# candidates; a few of their pairs have the remaining bits.
_CANDIDATES = 1 << 21
_BITS = np.uint64(21)

# Where the secret of each lane begins.
_LANES = (0, 32, 48, 16)


def second_preimage(
    target: int, prefix: str = "", suffix: str = "", letters: str = LETTERS, seed: int = 1
) -> str:
    """Returns a string of 64 bytes with a given begin, end, and xxh3-64 hash.

    Args:
        target: the hash.
        prefix, suffix: ASCII, at most 11 characters each.
        letters: ASCII characters of the rest, about 30 at least.
        seed: another one gives another string.
    """
    assert max(len(prefix), len(suffix)) <= _LANE - 5
    dice = np.random.default_rng(seed)
    begins, ends = [prefix, "", "", ""], ["", "", "", suffix]
    lanes = [
        _candidates(dice, begin.encode(), end.encode(), letters.encode())
        for begin, end in zip(begins, ends, strict=True)
    ]
    terms = [_mixed(lane, begin) for lane, begin in zip(lanes, _LANES, strict=True)]
    wanted = np.uint64((_unfinished(target) - LENGTH * _PRIME64_1) & _MASK)
    low = np.uint64((1 << int(_BITS)) - 1)
    for middle in dice.integers(0, 1 << int(_BITS), 64, np.uint64):
        left = _join(terms[0], terms[1], middle & low)
        right = _join(terms[2], terms[3], (wanted - middle) & low)
        sums = terms[0][left[0]] + terms[1][left[1]]
        rest = wanted - (terms[2][right[0]] + terms[3][right[1]])
        _, at_left, at_right = np.intersect1d(sums, rest, return_indices=True)
        if len(at_left):
            a, b = (rows[at_left[0]] for rows in left)
            c, d = (rows[at_right[0]] for rows in right)
            found = b"".join(
                lane[row].tobytes() for lane, row in zip(lanes, (a, b, c, d), strict=True)
            )
            assert xxhash.xxh3_64_intdigest(found) == target
            return found.decode()
    raise AssertionError("no string of these letters was found; take another seed")


def colliding(of: str, prefix: str = "", letters: str = LETTERS, seed: int = 1) -> str:
    """Returns another string with the xxh3-64 hash of a given one; see `second_preimage`."""
    return second_preimage(xxhash.xxh3_64_intdigest(of.encode()), prefix, "", letters, seed)


def _candidates(
    dice: np.random.Generator, begin: bytes, end: bytes, letters: bytes
) -> NDArray[np.uint8]:
    """Returns u1[n, 16], the bytes of one lane."""
    alphabet = np.frombuffer(letters, np.uint8)
    lane = alphabet[dice.integers(0, len(alphabet), (_CANDIDATES, _LANE))]
    lane[:, : len(begin)] = np.frombuffer(begin, np.uint8)
    lane[:, _LANE - len(end) :] = np.frombuffer(end, np.uint8)
    return lane


def _mixed(lane: NDArray[np.uint8], begin: int) -> NDArray[np.uint64]:
    """Returns u8[n], the term of each candidate: the two halves of a 128-bit product, folded."""
    words = np.ascontiguousarray(lane).view("<u8")
    flips = np.frombuffer(_SECRET[begin : begin + _LANE], "<u8")
    a, b = words[:, 0] ^ flips[0], words[:, 1] ^ flips[1]
    half, low = np.uint64(32), np.uint64(0xFFFF_FFFF)
    a_low, a_high, b_low, b_high = a & low, a >> half, b & low, b >> half
    middle = a_high * b_low + ((a_low * b_low) >> half)
    carry = a_low * b_high + (middle & low)
    high = a_high * b_high + (middle >> half) + (carry >> half)
    return (a * b) ^ high


def _join(
    first: NDArray[np.uint64], second: NDArray[np.uint64], low: np.uint64
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns the rows of pairs whose sum ends in the given bits."""
    mask = np.uint64((1 << int(_BITS)) - 1)
    order = np.argsort(second & mask, kind="stable")
    ends = (second & mask)[order]
    needed = (low - first) & mask
    begin, end = np.searchsorted(ends, needed), np.searchsorted(ends, needed, side="right")
    counts = end - begin
    rows = np.repeat(np.arange(len(first)), counts)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, order[np.repeat(begin, counts) + places]


def _unfinished(digest: int) -> int:
    """Returns the sum that the finish of xxh3 turns into a digest."""
    digest ^= digest >> 32
    digest = digest * pow(_PRIME_MX1, -1, 1 << 64) & _MASK
    return digest ^ (digest >> 37)


def short_pairs(count: int, seed: int = 1, letters: str = LETTERS) -> list[tuple[str, str]]:
    """Returns pairs of a string of 7 and one of 8 characters with the same hash.

    For each length from 4 to 8 the hash is a bijection of the bytes, so each string of 7 has one
    of 8 with the same hash; few of these consist of letters (one in seven million, with `LETTERS`).
    """
    dice, alphabet = np.random.default_rng(seed), np.frombuffer(letters.encode(), np.uint8)
    is_letter = np.zeros(256, np.bool_)
    is_letter[alphabet] = True
    found: list[tuple[str, str]] = []
    while len(found) < count:
        short = alphabet[dice.integers(0, len(alphabet), (1 << 20, 7))]
        long = _bytes_of(_unmixed(_mixed_4_to_8(_word_of(short), 7), 8))
        for row in np.flatnonzero(is_letter[long].all(axis=1)).tolist():
            pair = short[row].tobytes().decode(), long[row].tobytes().decode()
            assert len({xxhash.xxh3_64_intdigest(each.encode()) for each in pair}) == 1
            found.append(pair)
    return found[:count]


_FLIP = np.uint64(
    int.from_bytes(_SECRET[8:16], "little") ^ int.from_bytes(_SECRET[16:24], "little")
)
_PRIME_MX2 = 0x9FB21C651E98DF25


def _word_of(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Returns u8[n], the first four bytes above the last four."""
    first = np.ascontiguousarray(data[:, :4]).view("<u4")[:, 0].astype(np.uint64)
    last = np.ascontiguousarray(data[:, -4:]).view("<u4")[:, 0].astype(np.uint64)
    return (first << np.uint64(32)) + last


def _bytes_of(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Returns u1[n, 8], the inverse of `_word_of` for strings of 8 bytes."""
    swapped = (words >> np.uint64(32)) | (words << np.uint64(32))
    return swapped.astype("<u8").view(np.uint8).reshape(-1, 8)


def _mixed_4_to_8(words: NDArray[np.uint64], length: int) -> NDArray[np.uint64]:
    h = words ^ _FLIP
    h = h ^ _rotated(h, 49) ^ _rotated(h, 24)
    h = h * np.uint64(_PRIME_MX2)
    h = h ^ ((h >> np.uint64(35)) + np.uint64(length))
    h = h * np.uint64(_PRIME_MX2)
    return h ^ (h >> np.uint64(28))


def _unmixed(h: NDArray[np.uint64], length: int) -> NDArray[np.uint64]:
    inverse = np.uint64(pow(_PRIME_MX2, -1, 1 << 64))
    h = h ^ (h >> np.uint64(28)) ^ (h >> np.uint64(56))
    h = h * inverse
    # The upper 35 bits hold the value that was added to the lower ones.
    h = h ^ ((h >> np.uint64(35)) + np.uint64(length))
    h = h * inverse
    # Applied 64 times, x ^ rotl(x, 49) ^ rotl(x, 24) gives x again, so 63 more times undo it.
    # Applied 2^n times, it is the same with the rotations multiplied by 2^n.
    for doubling in range(6):
        h = h ^ _rotated(h, 49 << doubling) ^ _rotated(h, 24 << doubling)
    return h ^ _FLIP


def _rotated(h: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    bits %= 64
    return (h << np.uint64(bits)) | (h >> np.uint64(64 - bits)) if bits else h
