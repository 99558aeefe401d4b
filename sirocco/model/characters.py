"""Properties of each code point for the analysis of texts: the table of one version of Unicode.

The table is a file of this package, which `scripts/characters.py` writes. Interpreters bring
several versions of Unicode; with a table of its own every process analyses alike.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

UNICODE_VERSION = "14.0.0"
"""That of Python 3.11: newer interpreters know all its characters too, and change none of them."""

TABLE_PATH = Path(__file__).parent / f"characters-{UNICODE_VERSION}.npz"

FOLDED_PATH = Path(__file__).parent / f"characters-folded-{UNICODE_VERSION}.npz"
"""The same without accents."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CharacterTable:
    """Two stages: `blocks[index[c >> 8], c & 255]` describes code point c.

    Entries are as laid out in `sirocco.kernels.text.characters`.

    Attributes:
        index: u2[8192], the block of each 256 code points; longer than Unicode, so that no sequence
            of bytes can point beyond it.
        blocks: u4[b, 256].
        row_index: u2[8192], row_blocks: u2[d, 256]: the row of each code point's decomposition.
        starts: i4[r + 1], pool: u4[p]: the mappings.
        compositions: u8[4096], compositions of neighbouring pairs; without Hangul.
    """

    index: NDArray[np.uint16]
    blocks: NDArray[np.uint32]
    row_index: NDArray[np.uint16]
    row_blocks: NDArray[np.uint16]
    starts: NDArray[np.int32]
    pool: NDArray[np.uint32]
    compositions: NDArray[np.uint64]


@functools.cache
def character_table() -> CharacterTable:
    """Returns the table, read once per process."""
    return _read(TABLE_PATH)


@functools.cache
def folded_table() -> CharacterTable:
    """Returns the table that leaves accents out, read once per process that has such queries."""
    return _read(FOLDED_PATH)


def _read(path: Path) -> CharacterTable:
    with np.load(path) as columns:
        return CharacterTable(**{f.name: columns[f.name] for f in fields(CharacterTable)})
