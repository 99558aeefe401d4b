"""Writes the table of characters for the analysis of texts, from the pinned version of Unicode.

    python scripts/characters.py [--check]

A second table is that of queries that fold accents: the same without accents, see `FoldedMaker`.

Categories, decompositions and case folding come from the interpreter, which has to be one of that
version (Python 3.11); scripts and emoji from `scripts/unicode`. The table is committed: all
interpreters and processes of a cluster analyse alike. Another version is another analysis, see
docs/adr/0043-text-analysis.md.
"""

from __future__ import annotations

import argparse
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.text.characters import (
    BLOCK_COUNT,
    CLASS_SHIFT,
    CODE_MASK,
    COMBINING_SHIFT,
    COMPOSITIONS,
    EMOJI,
    EXPANDS,
    FLAG,
    HARD,
    LENGTHENS,
    MARK,
    OTHER,
    SLOW,
    UNSPACED,
    UNSPACED_MARK,
    composition_place,
)
from sirocco.model.characters import FOLDED_PATH, TABLE_PATH, UNICODE_VERSION

PROPERTIES = Path(__file__).parent / "unicode" / f"properties-{UNICODE_VERSION}.txt"
UNSPACED_SCRIPTS = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
IGNORABLE, PICTOGRAPHIC = "Default_Ignorable_Code_Point", "Extended_Pictographic"
FRACTION_SLASH = "\u2044"
IOTA = "\u0345"
# Hangul vowels and trailing consonants compose by rule, not by table.
JAMO_SECONDS = frozenset(map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))))
HANGUL = range(0xAC00, 0xAC00 + 11_172)
# Most characters that one is mapped to without the slow path: the kernel has room for them.
FAST_CHARACTERS_MAX = 4


def read_properties() -> dict[str, frozenset[str]]:
    """Returns the characters of each property."""
    found: dict[str, set[str]] = {}
    for line in PROPERTIES.read_text().splitlines():
        if line and not line.startswith("#"):
            span, name = line.split(" ; ")
            first, last = (int(part, 16) for part in span.split(".."))
            found.setdefault(name, set()).update(map(chr, range(first, last + 1)))
    return {name: frozenset(characters) for name, characters in found.items()}


def characters() -> Iterator[str]:
    """Yields all characters, surrogates excepted."""
    for code in range(sys.maxunicode + 1):
        if not 0xD800 <= code < 0xE000:
            yield chr(code)


class Maker:
    """Collects the columns of the table.

    A character is mapped to its compatibility decomposition without ignorable characters, each of
    the rest casefolded. The iota below letters (U+0345) folds to a letter only after marks are in
    order, in the kernel: until then it is a mark.
    """

    def __init__(self) -> None:
        self.properties = read_properties()
        self.unspaced = frozenset().union(*(self.properties[s] for s in UNSPACED_SCRIPTS))
        self.pairs = dict(self._pairs())
        self.seconds = JAMO_SECONDS.union(second for _, second in self.pairs)
        self.rows: dict[str, int] = {"": 0}
        self.pool: list[int] = []
        self.starts: list[int] = [0, 0]
        # The row of the empty mapping, of ignorable characters; row 0 means the character itself.
        self.row_of_mapping: dict[tuple[str, ...], int] = {}

    @staticmethod
    def _pairs() -> Iterator[tuple[tuple[str, str], str]]:
        """Yields the pairs that compose to a character."""
        for character in characters():
            parts = unicodedata.decomposition(character)
            if " " in parts and not parts.startswith("<"):
                first, second = (chr(int(part, 16)) for part in parts.split())
                if unicodedata.normalize("NFC", first + second) == character:
                    yield (first, second), character

    def mapping(self, character: str) -> tuple[str, ...]:
        """Returns the characters that one is mapped to, decomposed and folded."""
        if character == "\u0130":
            return ("i",)
        ignorable = self.properties[IGNORABLE]
        if character in ignorable:
            return ()
        found = "".join(c for c in unicodedata.normalize("NFKD", character) if c not in ignorable)
        while (folded := self._folded(found)) != found:
            found = folded
        category = unicodedata.category(character)
        if category == "No" and FRACTION_SLASH in unicodedata.normalize("NFKD", character):
            found = " " + found
        return tuple(found)

    def _folded(self, text: str) -> str:
        folded = "".join(
            c if c == IOTA else unicodedata.normalize("NFKD", c.casefold()) for c in text
        )
        return "".join(c for c in folded if c not in self.properties[IGNORABLE])

    def class_of(self, character: str) -> int:
        """Returns the class of a character of a normalised text."""
        category = unicodedata.category(character)
        if character == "\u30fc":
            return LENGTHENS
        if category[0] == "M":
            return UNSPACED_MARK if character in self.unspaced else MARK
        if category[0] in "LN" or character == "_":
            return UNSPACED if character in self.unspaced else OTHER
        if 0x1F1E6 <= ord(character) <= 0x1F1FF:
            return FLAG
        return EMOJI if character in self.properties[PICTOGRAPHIC] else 0

    def row(self, mapping: tuple[str, ...]) -> int:
        """Returns the row of a mapping, which is added if it is new."""
        known = self.row_of_mapping.get(mapping)
        if known is None:
            known = self.row_of_mapping[mapping] = len(self.starts) - 1
            self.pool += [ord(c) | unicodedata.combining(c) << COMBINING_SHIFT for c in mapping]
            self.starts.append(len(self.pool))
        return known

    def entries(self, character: str) -> tuple[int, int]:
        """Returns the entry of a character, and the row of its mapping, 0 for itself."""
        mapping = self.mapping(character)
        combining = unicodedata.combining(character)
        entry = combining << COMBINING_SHIFT
        if character in self.seconds:
            entry |= HARD
        is_hangul = ord(character) in HANGUL
        row = 0 if mapping == (character,) or is_hangul else self.row(mapping)
        composed = unicodedata.normalize("NFC", "".join(mapping))
        if not mapping:
            return EXPANDS | row, row
        own_class = self.class_of(character) << CLASS_SHIFT
        disturbs = any(c in self.seconds or unicodedata.combining(c) for c in composed)
        is_itself = composed == character
        if (not is_itself and disturbs) or IOTA in mapping or character in JAMO_SECONDS:
            return entry | SLOW | own_class, row
        if len(composed) > 1:
            if (
                len(composed) > FAST_CHARACTERS_MAX
                or combining
                or not self._is_short(character, composed)
            ):
                return entry | SLOW | own_class, row
            return entry | EXPANDS | own_class | self.row(tuple(composed)), row
        if not self._is_short(character, composed):
            return entry | SLOW | own_class, row
        return (
            entry | self.class_of(composed) << CLASS_SHIFT | (ord(character) ^ ord(composed)),
            row,
        )

    @staticmethod
    def _is_short(character: str, mapped: str) -> bool:
        """Returns whether the kernel has room for a mapping: its bytes and two borders each."""
        return len(mapped.encode()) + 2 * len(mapped) <= 3 * len(character.encode())

    def compositions(self) -> NDArray[np.uint64]:
        """Returns the pairs that compose, in the kernel's form."""
        table = np.zeros(COMPOSITIONS, np.uint64)
        for (first, second), composed in self.pairs.items():
            pair = np.uint64(ord(first) << 21 | ord(second))
            place = composition_place(pair)
            while table[place]:
                place = (place + 1) % COMPOSITIONS
            table[place] = pair << np.uint64(21) | np.uint64(ord(composed))
        return table

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns all columns, as `CharacterTable` names them."""
        entries = np.zeros(BLOCK_COUNT << 8, np.uint32)
        rows = np.zeros(BLOCK_COUNT << 8, np.uint16)
        self.row(())
        # Most codes are not assigned, or private: each is itself, no letter, and its entry is 0.
        special = self.properties[IGNORABLE] | self.properties[PICTOGRAPHIC]
        for character in characters():
            if unicodedata.category(character) in ("Cn", "Co") and character not in special:
                continue
            entries[ord(character)], rows[ord(character)] = self.entries(character)
        index, blocks = two_stages(entries)
        row_index, row_blocks = two_stages(rows)
        assert len(self.starts) <= min(1 << 16, CODE_MASK)
        return {
            "index": index,
            "blocks": blocks,
            "row_index": row_index,
            "row_blocks": row_blocks,
            "starts": np.array(self.starts, np.int32),
            "pool": np.array(self.pool, np.uint32),
            "compositions": self.compositions(),
        }


# Marks of these scripts are accents, vowel points and the like: a reader knows the word without.
# In others (Thai, Devanagari, kana) the marks that Unicode puts into the same category are letters.
ACCENT_NAMES = ("COMBINING ", "HEBREW ", "ARABIC ", "SYRIAC ")
VOICING_MARKS = frozenset("\u3099\u309a")
# `ø`, `đ`, `ł` and some hundred more: a letter with what Unicode takes for a part of it.
LETTER_WITH = re.compile("LATIN SMALL LETTER ([A-Z]) WITH .*")
# Letters whose names do not say how they are written without them; as in CLDR's Latin-ASCII.
OTHER_LETTERS = {
    "æ": "ae", "œ": "oe", "þ": "th", "ð": "d", "ŋ": "n", "ĸ": "q", "ı": "i", "ȷ": "j",
}  # fmt: skip


class FoldedMaker(Maker):
    """Collects the columns of the table that folds accents, too.

    From what a character is mapped to, accents are left out, and each Latin letter with a stroke, a
    hook or the like is the letter without.
    """

    def mapping(self, character: str) -> tuple[str, ...]:
        """Returns the characters that one is mapped to, decomposed, folded and without accents."""
        return tuple("".join(map(without_accent, super().mapping(character))))


def without_accent(character: str) -> str:
    """Returns what is left of a character of a decomposed and folded text."""
    if unicodedata.category(character) == "Mn":
        is_accent = unicodedata.name(character).startswith(ACCENT_NAMES)
        return "" if is_accent and character not in VOICING_MARKS else character
    letter = LETTER_WITH.fullmatch(unicodedata.name(character, ""))
    return letter[1].lower() if letter else OTHER_LETTERS.get(character, character)


def two_stages(values: NDArray[Any]) -> tuple[NDArray[np.uint16], NDArray[Any]]:
    """Returns (index u2[n], distinct blocks of 256 values)."""
    blocks, index = np.unique(values.reshape(-1, 256), axis=0, return_inverse=True)
    return index.reshape(-1).astype(np.uint16), blocks


def main() -> int:
    """Writes or checks the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the committed table")
    arguments = parser.parse_args()
    if unicodedata.unidata_version != UNICODE_VERSION:
        print(f"needs a Python with Unicode {UNICODE_VERSION}, not {unicodedata.unidata_version}")
        return 1
    for path, maker in ((TABLE_PATH, Maker()), (FOLDED_PATH, FoldedMaker())):
        columns = maker.columns()
        if arguments.check:
            with np.load(path) as known:
                if any(not np.array_equal(known[name], columns[name]) for name in columns):
                    return 1
            continue
        # Typed as anything, for `savez_compressed` has an option of its own among them.
        arrays: dict[str, Any] = columns
        np.savez_compressed(path, **arrays)
        print(path, path.stat().st_size, {n: c.shape for n, c in columns.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
