"""The text kernels, compared with the reference analysis, `unicodedata` and the xxhash package."""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from sirocco.kernels.jit.compiled import JIT_ENABLED
from sirocco.model.characters import character_table
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.objects import pack_bytes
from sirocco.model.text import (
    TextAnalyser,
    analyse,
    analyse_batch,
    hash_rows,
    invalid_utf8_rows,
    term_hash,
)
from tests.support.seeds import drawn_seed

SCRIPTS = (
    "abcXYZ_09 ,.-'\n\t\0\x7f",
    "äöüÄÖÜßẞéèñçåøŉǰÅſ",
    "\u0300\u0301\u0308\u0323\u0327\u0338\u0345\u034f\u20e3\ufe0f\u200d",
    "ΑΣΊςσάΰὈᾳᾈ",
    "İıIiŞş\u0307",
    "हिन्दीक्षमा\u093c\u0929\u0958\u09c7\u09be\u0bc6\u0bbe",
    "각한글\u1100\u1161\u11a8\u115f\uac00\u11a7",
    "ﬁﬀﬃſt…½²ª™①Ａａ＿\u00a0\u3000\uff9e\uff76\ufdfa\ufb2c\ufb1d\u0344\u0f73",
    "日本語中文カタカナ𠀀豈\uf900",
    "قرآن\u0653\u064b\u0651\u0627",
    "ไทยกำ\u0e33\u0eb3",
    "👩‍👩‍👧🏽🎉≠<\u0338>=",
    "\U0001d400\U0001e900\U0001e94a\U000e0100\U000f0000\U0010ffff\U00011099\U000110ba",
)
ANY_TEXT = st.text(max_size=40)
SCRIPT_TEXT = st.lists(
    st.sampled_from(SCRIPTS).flatmap(lambda script: st.text(alphabet=script, max_size=9)),
    max_size=8,
).map("".join)


def assert_as_reference(texts: list[str], note: str = "") -> None:
    columns = analyse_batch(*pack_bytes([text.encode() for text in texts]))
    assert len(columns.offsets) == len(texts) + 1
    for row, (text, (start, stop)) in enumerate(
        zip(texts, pairwise(columns.offsets.tolist()), strict=True)
    ):
        tokens = analyse(text)
        assert columns.terms[start:stop].tolist() == sorted({term_hash(t) for t in tokens}), (
            f"{note} row {row}: {text!r}"
        )
        assert columns.lengths[row] == len(tokens), f"{note} row {row}: {text!r}"
        repeats = {term_hash(token): count for token, count in Counter(tokens).items()}
        assert columns.counts[start:stop].tolist() == [repeats[t] for t in sorted(repeats)], (
            f"{note} row {row}: {text!r}"
        )


@given(st.text(alphabet=[chr(code) for code in range(128)], max_size=60))
def test_ascii_is_analysed_like_any_text(text: str) -> None:
    # The last character becomes a space by normalisation, which takes the slow path.
    assert analyse(text) == analyse(f"{text}\u00a0")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("Free COFFEE, downtown!", ["free", "coffee", "downtown"]),
        ("snake_case 3.14", ["snake_case", "3", "14"]),
        ("Straße ﬁn", ["strasse", "fin"]),
        ("ΟΔΟΣ οδος", ["οδοσ", "οδοσ"]),
        ("İ", ["i\u0307"]),
        ("e\u0301te\u0301", ["été"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("\u1112\u1161\u11ab글", ["한글"]),
        ("½", ["1", "2"]),
        ("a…b", ["a", "b"]),
    ],
)
def test_reference_follows_the_contract(text: str, tokens: list[str]) -> None:
    assert analyse(text) == tokens
    assert_as_reference([text])


@given(st.lists(st.one_of(ANY_TEXT, SCRIPT_TEXT), max_size=12))
def test_batch_equals_reference(texts: list[str]) -> None:
    assert_as_reference(texts)


@pytest.mark.skipif(not JIT_ENABLED, reason="a million texts are for native code")
def test_every_character_alone_and_between_letters() -> None:
    characters = [chr(c) for c in range(0x40000) if not 0xD800 <= c < 0xE000]
    characters += [chr(c) for c in range(0xE0000, 0xE0200)]
    assert_as_reference(characters)
    assert_as_reference([f"Xe{c}E{c} z" for c in characters])


@pytest.mark.skipif(not JIT_ENABLED, reason="a hundred thousand texts are for native code")
def test_all_that_decomposes_with_marks_after_it() -> None:
    characters = [chr(c) for c in range(0x30000) if not 0xD7FF < c < 0xE000]
    parts = [part for c in characters if len(part := unicodedata.normalize("NFD", c)) > 1]
    for mark in ("", *"\u0301\u0308\u0323\u0327\u0345\u0346\u3099\uff9e\u09beé"):
        assert_as_reference([f"{part}{mark} a{part[1:]}{mark}{part[1:]}z" for part in parts])
        assert_as_reference([f"seventy{part[0]}{mark}{part[1:]}" for part in parts])


@pytest.mark.skipif(not JIT_ENABLED, reason="a million texts are for native code")
def test_random_marks_after_starters_that_normalise_and_others() -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    pool = "aeqñêAEΑαиᾳＡﬁ1 -<\u09c7" + 3 * "\u0300\u0301\u0308\u0323\u0327\u0338\u0345\u0346\u09be"
    texts = ["".join(rng.choices(pool, k=rng.randrange(1, 16))) for _ in range(50_000)]
    assert_as_reference(texts, f"seed {seed}")


@pytest.mark.skipif(not JIT_ENABLED, reason="a million texts are for native code")
def test_random_texts_of_all_scripts() -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    pool = "".join(SCRIPTS)
    texts = ["".join(rng.choices(pool, k=rng.randrange(60))) for _ in range(20_000)]
    assert_as_reference(texts, f"seed {seed}")


def test_table_knows_every_letter() -> None:
    """Planes that the table leaves out must not hold characters of terms."""
    table = character_table()
    for high in range(0x1100):
        if table.index[high] == 0:
            for code in range(high << 8, (high + 1) << 8):
                character = chr(code)
                assert unicodedata.category(character)[0] not in "LMN", hex(code)
                assert unicodedata.category(character) == "Cs" or character.casefold() == character
                assert 0xD800 <= code < 0xE000 or unicodedata.normalize("NFKC", character) == (
                    character
                )


def test_separators_take_part_in_no_composition() -> None:
    """`_normalise` relies on this: no character composes with, or turns into, a line feed."""
    for code in range(0x110000):
        character = chr(code)
        parts = unicodedata.decomposition(character).split()
        if parts and not parts[0].startswith("<"):
            assert "0020" not in parts
            assert "000A" not in parts
    everything = "".join(chr(c) for c in range(0x110000) if c != 0x0A and not 0xD7FF < c < 0xE000)
    assert "\n" not in unicodedata.normalize("NFKC", everything).casefold()


def test_marks_at_row_ends_stay_in_their_row() -> None:
    assert_as_reference(["e", "\u0301", "a\u0327\u0301", "\u0323b", "\u1100", "\u1161", "\n\u0301"])


@pytest.mark.parametrize("length", [1, 3, 4, 7, 8, 9, 16, 17, 63, 64, 65, 127, 128, 129, 241])
def test_lengths_around_word_and_mask_borders(length: int) -> None:
    word = "x" * length
    assert_as_reference([word, f" {word}", f"{word} y", f"{word}é", word + "\u0301" * 3, ""])


@pytest.mark.parametrize("count", [23, 24, 25, 26, 400])
def test_many_terms_are_sorted_and_distinct(count: int) -> None:
    words = [f"w{i % (count - 3)}" for i in range(count)]
    assert_as_reference([" ".join(words), " ".join(reversed(words)), "same " * count])


def test_repeats_of_a_term_within_the_limits_fit_a_count() -> None:
    # The results of a character are repeated as often as the text has room for them.
    most = {"a ": 0.5}
    for code in range(0x110000):
        if unicodedata.is_normalized("NFKC", character := chr(code)):
            continue
        for text in (character, character + " "):
            tokens = Counter(analyse(text * 64))
            most[text] = max(tokens.values(), default=0) / len((text * 64).encode())
    assert max(most.values()) * DEFAULT_LIMITS.text_bytes <= 0xFFFF
    # Longer texts are refused at the front; if one arrives all the same, counts stop there.
    columns = analyse_batch(*pack_bytes([b"a " * 70_000 + b"b"]))
    assert sorted(columns.counts.tolist()) == [1, 0xFFFF]
    assert columns.lengths.tolist() == [70_001]


def test_results_outlive_the_next_batch() -> None:
    analyser = TextAnalyser()
    kept = analyser.analyse_batch(*pack_bytes([b"alpha beta", "e\u0301".encode()]))
    before = kept.terms.copy()
    analyser.analyse_batch(*pack_bytes([b"delta " * 1_000]))
    analyser.analyse_batch(*pack_bytes([b"gamma", "o\u0301".encode()]))
    assert (kept.terms == before).all()


def test_scratch_of_earlier_batches_does_not_show() -> None:
    analyser = TextAnalyser()
    for texts in (["x" * 5_000], ["é", "e\u0301" * 2_000], ["a b"], [""] * 5_000, ["ok"]):
        columns = analyser.analyse_batch(*pack_bytes([text.encode() for text in texts]))
        fresh = analyse_batch(*pack_bytes([text.encode() for text in texts]))
        assert np.array_equal(columns.terms, fresh.terms)
        assert np.array_equal(columns.offsets, fresh.offsets)
        assert np.array_equal(columns.lengths, fresh.lengths)
        assert np.array_equal(columns.counts, fresh.counts)


def test_read_only_and_empty_batches() -> None:
    data, offsets = pack_bytes([])
    data.flags.writeable = False
    offsets.flags.writeable = False
    assert analyse_batch(data, offsets).terms.size == 0
    assert_as_reference(["", "", ""])


@given(st.lists(st.binary(max_size=300), max_size=5), st.binary(min_size=1, max_size=64))
def test_xxh3_equals_the_package(rows: list[bytes], block: bytes) -> None:
    rows = [*rows, block * 40]
    hashes = hash_rows(*pack_bytes(rows))
    assert hashes.tolist() == [xxhash.xxh3_64_intdigest(row) for row in rows]


def test_xxh3_of_every_short_length_and_around_block_borders() -> None:
    lengths = [*range(300), 511, 512, 513, 1023, 1024, 1025, 1087, 1088, 1089, 2048, 2049, 5000]
    rows = [bytes((7 * i + length) % 251 for i in range(length)) for length in lengths]
    assert hash_rows(*pack_bytes(rows)).tolist() == [xxhash.xxh3_64_intdigest(r) for r in rows]


def is_valid(row: bytes) -> bool:
    try:
        row.decode()
    except UnicodeDecodeError:
        return False
    return True


INTERESTING = st.sampled_from(
    [b"a", b"\x80", b"\xbf", b"\xc0", b"\xc2", b"\xe0", b"\xa0", b"\x9f", b"\xed", b"\xef", b"\xf0",
     b"\x90", b"\x8f", b"\xf4", b"\xf5", b"\xff", "é".encode(), "語".encode(), "🎉".encode(),
     b"eight by"]
)  # fmt: skip


@given(st.lists(st.lists(INTERESTING, max_size=8).map(b"".join), max_size=20))
def test_utf8_check_equals_the_decoder(rows: list[bytes]) -> None:
    expected = [row for row, content in enumerate(rows) if not is_valid(content)]
    assert invalid_utf8_rows(*pack_bytes(rows)).tolist() == expected


@given(st.lists(st.lists(INTERESTING, max_size=8).map(b"".join), min_size=1, max_size=20))
def test_invalid_utf8_that_slipped_in_harms_no_other_row(rows: list[bytes]) -> None:
    """Analysis of such rows is undefined, but stays within its arrays."""
    good = [row if is_valid(row) else b"" for row in rows]
    try:
        got = analyse_batch(*pack_bytes(rows))
    except UnicodeDecodeError:
        return
    expected = analyse_batch(*pack_bytes(good))
    for row, content in enumerate(rows):
        if is_valid(content):
            a, b = (c.terms[c.offsets[row] : c.offsets[row + 1]] for c in (got, expected))
            assert np.array_equal(a, b)
