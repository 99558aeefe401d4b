"""The text kernels, compared with the reference analysis, `unicodedata` and the xxhash package."""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from itertools import groupby, pairwise

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from scripts.characters import Maker
from sirocco.kernels.jit.compiled import JIT_ENABLED
from sirocco.kernels.text.characters import CLASS_SHIFT
from sirocco.model.characters import UNICODE_VERSION, character_table
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.objects import pack_bytes
from sirocco.model.text import (
    TermColumns,
    TextAnalyser,
    analyse_batch,
    hash_rows,
    invalid_utf8_rows,
    term_hash,
    tokens_of,
    tokens_of_batch,
)
from sirocco.model.text import terms_of as model_terms
from tests.oracle import words
from tests.oracle.words import terms_of
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
    "日本語中文カタカナ𠀀豈\uf900ーゔ\u3099ｶﾞａ1",
    "قرآن\u0653\u064b\u0651\u0627",
    "ไทยกำ\u0e33\u0eb3ກ່ខ្មែរမြန်မာ",
    "👩‍👩‍👧🏽🎉≠<\u0338>=🇫🇷🇩❤\ufe0f©",
    "\U0001d400\U0001e900\U0001e94a\U000e0100\U000f0000\U0010ffff\U00011099\U000110ba",
)
# What the pinned version of Unicode does not know, the interpreter may.
ASSIGNED = st.characters(codec="utf-8").filter(
    lambda c: unicodedata.category(c) != "Cn" or unicodedata.unidata_version == UNICODE_VERSION
)
ANY_TEXT = st.text(ASSIGNED, max_size=40)
SCRIPT_TEXT = st.lists(
    st.sampled_from(SCRIPTS).flatmap(lambda script: st.text(alphabet=script, max_size=9)),
    max_size=8,
).map("".join)


def assert_as_reference(texts: list[str], note: str = "") -> None:
    # Of a capital that composes with marks, but not with an iota below, the folded one does: so
    # rare that the marks may be in another order.
    texts = [
        text.lower() if "\u0345" in unicodedata.normalize("NFKD", text) else text for text in texts
    ]
    packed = pack_bytes([text.encode() for text in texts])
    # Both of a text at once: it is normalised for both.
    found = [(terms_of(text), words.tokens_of(text)) for text in texts]
    _assert_columns(analyse_batch(*packed), texts, [terms for terms, _ in found], note)
    _assert_columns(tokens_of_batch(*packed), texts, [tokens for _, tokens in found], note)


def _assert_columns(
    columns: TermColumns, texts: list[str], found: list[list[str]], note: str
) -> None:
    assert len(columns.offsets) == len(texts) + 1
    rows = zip(texts, found, pairwise(columns.offsets.tolist()), strict=True)
    for row, (text, tokens, (start, stop)) in enumerate(rows):
        where = f"{note} row {row}: {text!r}"
        repeats = {term_hash(token): count for token, count in Counter(tokens).items()}
        assert columns.terms[start:stop].tolist() == sorted(repeats), where
        assert columns.lengths[row] == len(tokens), where
        assert columns.counts[start:stop].tolist() == [repeats[t] for t in sorted(repeats)], where


@given(st.text(alphabet=[chr(code) for code in range(128)], max_size=60))
def test_ascii_is_analysed_like_any_text(text: str) -> None:
    # The last character becomes a space by normalisation, which takes the slow path.
    assert tokens_of(text) == tokens_of(f"{text}\u00a0")


# Most are from reports of bugs in other search engines.
VECTORS = [
    ("", []),
    ("Free COFFEE, downtown!", ["free", "coffee", "downtown"]),
    ("snake_case 3.14", ["snake_case", "3", "14"]),
    ("Straße ﬁn", ["strasse", "fin"]),
    ("ΟΔΟΣ οδος", ["οδοσ", "οδοσ"]),
    ("İstanbul ISTANBUL", ["istanbul", "istanbul"]),
    ("e\u0301te\u0301 e\u200d\u0301", ["été", "é"]),
    ("हिन्दी में", ["हिन्दी", "में"]),
    ("\u1112\u1161\u11ab글", ["한글"]),
    ("5½ ¼cup ⅒", ["5", "1", "2", "1", "4cup", "1", "10"]),
    ("a…b", ["a", "b"]),
    (
        "soft\u00adhyphen zero\u200bwidth word\u2060joiner",
        ["softhyphen", "zerowidth", "wordjoiner"],
    ),
    ("می\u200cخواهم", ["میخواهم"]),
    ("❤️ ❤ 1️⃣", ["❤", "❤", "1\u20e3"]),
    ("👩‍👩‍👧 👍🏽👍", ["👩", "👩", "👧", "👍", "👍"]),
    ("🇫🇷🇩🇪 🇫 🇫🇷🇩", ["🇫🇷", "🇩🇪", "🇫🇷"]),
    ("大火事故 fire火", ["大", "火", "事", "故", "fire", "火"]),
    ("カーテン ｶｰﾃﾝ", [*"カーテン", *"カーテン"]),
    ("ｶﾞ", ["ガ"]),
    ("第1回x", ["第", "1", "回", "x"]),
    ("สวัสดี", ["ส", "วั", "ส", "ดี"]),
    ("ກຳ", ["ກ\u0ecd", "າ"]),
    ("\u30fcカ", ["\u30fc", "カ"]),
    ("™ ℹ️ © ㊗️", ["tm", "i", "©", "祝"]),
    ("\u0301火", ["\u0301", "火"]),
    ("α\u0345\u0301", ["άι"]),
]


@pytest.mark.parametrize(("text", "tokens"), VECTORS)
def test_tokens_follow_the_contract(text: str, tokens: list[str]) -> None:
    assert words.tokens_of(text) == tokens
    assert tokens_of(text) == tokens
    assert_as_reference([text, f"a {text}", f"{text} b"])


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("大火事故 fire火", ["大火", "火事", "事故", "fire", "火"]),
        ("สวัสดี", ["สวั", "วัส", "สดี"]),
        ("❤️東京❤", ["❤", "東京", "❤"]),
    ],
)
def test_terms_are_pairs_in_scripts_without_spaces(text: str, terms: list[str]) -> None:
    assert terms_of(text) == terms
    assert model_terms(text) == terms
    assert_as_reference([text])


@given(st.lists(st.one_of(ANY_TEXT, SCRIPT_TEXT), max_size=12))
def test_batch_equals_reference(texts: list[str]) -> None:
    assert_as_reference(texts)


def kind_of(character: str) -> tuple[object, ...]:
    """Returns all that the analysis of a character depends on, as the interpreter knows it."""
    properties = words._properties()
    return (
        unicodedata.category(character),
        unicodedata.combining(character),
        unicodedata.decomposition(character),
        unicodedata.is_normalized("NFKD", character),
        character.casefold() == character,
        character in words._unspaced(),
        character in properties["Extended_Pictographic"],
        character in properties["Default_Ignorable_Code_Point"],
    )


# Of a longer run of characters of one kind, as of ideographs, so many at each end, and from inside.
RUN_ENDS, RUN_INSIDE = 8, 16


def characters_of_all_kinds(rng: random.Random) -> list[str]:
    """Returns the characters but those in the middle of long runs of one kind.

    The kernel knows a character by its entry in the table alone, and
    `test_the_committed_table_is_what_the_script_writes` compares the entries of all.
    """
    characters = [chr(c) for c in range(0x40000) if not 0xD800 <= c < 0xE000]
    characters += [chr(c) for c in range(0xE0000, 0xE0200)]
    chosen: list[str] = []
    for _, run in groupby(characters, kind_of):
        first, *rest = run
        inside = rest[RUN_ENDS - 1 : -RUN_ENDS]
        if len(inside) > RUN_INSIDE:
            rest = [*rest[: RUN_ENDS - 1], *rng.sample(inside, RUN_INSIDE), *rest[-RUN_ENDS:]]
        chosen += [first, *rest]
    return chosen


@pytest.mark.skipif(not JIT_ENABLED, reason="fifty thousand texts are for native code")
def test_characters_of_every_kind_alone_and_between_letters() -> None:
    seed = drawn_seed()
    characters = characters_of_all_kinds(random.Random(seed))
    assert len(characters) > 20_000
    assert_as_reference(characters, f"seed {seed}")
    assert_as_reference([f"Xe{c}E{c} z" for c in characters], f"seed {seed}")


# Syllables are composed by rule: all with the first consonant and vowel, a sample of the others.
HANGUL, HANGUL_ALL, HANGUL_STEP = range(0xAC00, 0xD7A4), 28, 13


@pytest.mark.skipif(not JIT_ENABLED, reason="a hundred thousand texts are for native code")
def test_all_that_decomposes_with_marks_after_it() -> None:
    codes = [c for c in range(0x30000) if not 0xD800 <= c < 0xE000 and c not in HANGUL]
    codes += [*HANGUL[:HANGUL_ALL], *HANGUL[HANGUL_ALL::HANGUL_STEP], HANGUL[-1]]
    parts = [part for c in codes if len(part := unicodedata.normalize("NFD", chr(c))) > 1]
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


def test_the_committed_table_is_what_the_script_writes() -> None:
    if unicodedata.unidata_version != UNICODE_VERSION:
        pytest.skip("the table is written by an interpreter of its version of Unicode")
    columns = Maker().columns()
    table = character_table()
    for name, column in columns.items():
        assert np.array_equal(getattr(table, name), column), name


def test_what_composes_is_described_by_its_own_entry() -> None:
    """The kernel looks up the class of a composed character as if a text held it."""
    table = character_table()
    for pair in table.compositions[table.compositions > 0].tolist():
        composed = pair & 0x1FFFFF
        entry = int(table.blocks[table.index[composed >> 8], composed & 255])
        category = unicodedata.category(chr(composed))[0]
        assert bool(entry >> CLASS_SHIFT & 7) == (category in "LMN"), hex(composed)


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
            tokens = Counter(model_terms(text * 64))
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
