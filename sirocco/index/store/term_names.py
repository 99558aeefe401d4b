"""The texts of terms, which are numbers elsewhere: found in the objects that contain them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.store_search import Hits
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import terms_of

__all__ = ["TermNames"]

# Terms with cached texts: some 10 MB. The most frequent ones are requested repeatedly.
KEPT_MAX = 100_000


class TermNames:
    """Finds the texts of terms, and caches the latest. One thread at a time."""

    def __init__(self, hashing: TermHashing = WIRE_TERMS, kept_max: int = KEPT_MAX) -> None:
        """Starts with an empty cache of `kept_max` texts; `hashing` numbers the terms."""
        self._kept_max = kept_max
        self.hashing = hashing
        self._texts: dict[int, str] = {}

    def of(
        self,
        hashes: NDArray[np.uint64],
        hits: Iterable[Hits],
        rows_with: Callable[[Hits, NDArray[np.uint64]], NDArray[np.int64]],
    ) -> list[str]:
        """Returns the texts of terms, in their order.

        Args:
            hashes: u8[t], each in some object of `hits`.
            hits: where to look.
            rows_with: returns rows of the hits' slices that contain any of some terms.
        """
        wanted = hashes.tolist()
        texts = self._texts
        unknown = {each for each in wanted if each not in texts}
        missing = np.array(list(unknown), np.uint64)
        found: dict[int, str] = {}
        # Producing the hits may itself take a while.
        for one in hits if len(missing) else ():
            words = list({w for t in _texts_of(one, rows_with(one, missing)) for w in terms_of(t)})
            numbered = zip(self.hashing.numbers(words).tolist(), words, strict=True)
            # The other words of these texts would fill the cache with what nobody asks for.
            found |= {number: word for number, word in numbered if number in unknown}
            missing = np.array([each for each in missing.tolist() if each not in found], np.uint64)
            if not len(missing):
                break
        named = [found.get(each) or texts[each] for each in wanted]
        if len(texts) + len(found) > self._kept_max:
            texts.clear()
        texts.update(islice(found.items(), self._kept_max))
        return named


def _texts_of(hits: Hits, rows: NDArray[np.int64]) -> list[str]:
    if not len(rows):
        return []
    objects = Hits(hits.source, rows).gather().objects
    data, offsets = objects.text.tobytes(), objects.text_offsets.tolist()
    return [data[begin:end].decode() for begin, end in pairwise(offsets)]
