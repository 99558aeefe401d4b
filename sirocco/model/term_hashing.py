"""Numbers of terms for matching: the wire's hash, or a hash with a secret key.

On the wire a term is its xxh3-64 hash (`model.text`), for which anybody can find colliding words.
So it only decides where an object or a query is sent. A process that matches objects and queries
numbers the terms of both again, from their words, under a key unknown to clients (docs/adr/0030).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.keyed_hash import KEY_WORDS, keyed_hash_spans
from sirocco.model.folding.query_patterns import QueryPatterns
from sirocco.model.patterns import NearPatterns, OrderedTokens
from sirocco.model.text import TermColumns, TextAnalyser, term_hash

__all__ = ["SECRET_BYTES", "WIRE_TERMS", "TermHashing"]

# Bytes of the secret from which a key is derived: 128 random bits.
SECRET_BYTES = 16


class TermHashing:
    """The numbers of terms, unsigned integers of 64 bits, under one key.

    Attributes:
        id: distinguishes keys, at least 1, without revealing them; 0 for the wire's hash.
        secret: source of the key, as text, for other processes of the cluster; empty for the wire's
            hash.
    """

    __slots__ = ("_key", "id", "secret")

    def __init__(self, secret: str = "") -> None:
        """Derives a key from a secret; without one the hash is the wire's.

        Raises:
            ValueError: The text is not SECRET_BYTES in hexadecimal digits.
        """
        self.secret = secret
        self.id = 0
        self._key: NDArray[np.uint64] | None = None
        if secret:
            data = bytes.fromhex(secret)
            if len(data) != SECRET_BYTES:
                raise ValueError(f"secret of terms: has {len(data)} bytes, needs {SECRET_BYTES}")
            stretched = hashlib.shake_256(b"sirocco terms" + data).digest(8 * KEY_WORDS + 8)
            words = np.frombuffer(stretched, np.uint64)
            self._key = words[:-1].copy()
            self.id = int(words[-1]) | 1

    def __repr__(self) -> str:
        """Omits the secret."""
        return f"TermHashing(id={self.id})"

    @property
    def is_keyed(self) -> bool:
        """Whether there is a key."""
        return self._key is not None

    def numbers(self, terms: Sequence[str]) -> NDArray[np.uint64]:
        """Returns u8[t], the numbers of terms."""
        if self._key is None:
            return np.array([term_hash(term) for term in terms], np.uint64)
        encoded = [term.encode() for term in terms]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(word) for word in encoded], out=offsets[1:])
        return self.numbers_of_rows(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def numbers_of_rows(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        """Returns u8[t], the numbers of the words of a byte column (u1[b], i8[t + 1]).

        Raises:
            TypeError: There is no key; the wire's numbers are already there.
        """
        if self._key is None:
            raise TypeError("without a key the numbers of terms are those of the wire")
        numbers = np.empty(len(offsets) - 1, np.uint64)
        # The kernel reads whole words.
        padded = np.concatenate([data, np.zeros(8, np.uint8)])
        keyed_hash_spans(padded, offsets, self._key, numbers)
        return numbers

    def draws(self, handles: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Returns u8[n], numbers that no client can choose, for sampling things with handles.

        Equal for all processes that share a key. Without one these are the handles.
        """
        if self._key is None:
            return handles
        offsets = np.arange(0, 8 * len(handles) + 1, 8, dtype=np.int64)
        return self.numbers_of_rows(np.ascontiguousarray(handles).view(np.uint8), offsets)

    def analyse(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        analyser: TextAnalyser | None = None,
    ) -> TermColumns:
        """Returns the terms of texts; arguments as of `TextAnalyser.analyse_batch`.

        Args:
            data, offsets: the texts.
            analyser: the thread's analyser, if it has many batches.
        """
        return (analyser or TextAnalyser()).analyse_batch(data, offsets, self._key)

    def analyse_both(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        analyser: TextAnalyser | None = None,
    ) -> tuple[TermColumns, TermColumns]:
        """Returns (terms, tokens) of texts, one object where they are equal."""
        return (analyser or TextAnalyser()).analyse_both(data, offsets, self._key)

    def tokens(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        analyser: TextAnalyser | None = None,
    ) -> TermColumns:
        """Returns the tokens of texts."""
        return (analyser or TextAnalyser()).tokens_of_batch(data, offsets, self._key)

    def analyse_in_order(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        analyser: TextAnalyser | None = None,
    ) -> tuple[TermColumns, TermColumns, OrderedTokens]:
        """Returns (terms, tokens, tokens in order) of texts."""
        return (analyser or TextAnalyser()).analyse_in_order(data, offsets, self._key)

    def patterns(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        table: QueryPatterns,
        analyser: TextAnalyser | None = None,
        *,
        in_order: OrderedTokens | None = None,
        near: NearPatterns | None = None,
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Returns the numbers of the patterns that texts hold, u8[p], and i8[n + 1].

        Args:
            data, offsets: n texts.
            table: the patterns.
            analyser: the thread's analyser, if it has many batches.
            in_order: the texts' tokens, where they are known.
            near: where the texts are; None: all patterns are wanted.
        """
        return table.find(data, offsets, self._key, analyser, in_order=in_order, near=near)


WIRE_TERMS = TermHashing()
"""The numbers that terms have on the wire."""
