"""The objects of a file as columns, and which of them satisfy the conditions of a query."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from tests.oracle.filters import FIXED_MEMBERS, satisfies
from tests.oracle.geometry import Bools, Region
from tests.oracle.times import arrivals_ms, duration_ms
from tests.oracle.words import Beginning, Leaf, evaluate, holds, parse, terms_of, tokens_of

Members: TypeAlias = Mapping[str, Any]
ObjectId: TypeAlias = int | str
Arrival: TypeAlias = Literal["event", "wall"]
Rows: TypeAlias = NDArray[np.int64]

_NO_ROWS = np.empty(0, np.int64)


class Objects:
    """n objects in order of publication.

    Args:
        objects: Their JSON members, all valid.
        arrival: As the option of `sirocco replay`. With "wall" arrivals are unknown: they are all 0
            here, and queries that depend on them cannot be answered.

    Attributes:
        ids: As published.
        keys: u8[n], the 64-bit numbers that order them.
        arrivals: i8[n], epoch ms, ascending.
        lon, lat: f8[n], degrees.
        lengths: i8[n], tokens with repeats.
        vocabulary: All terms by code point; the place of a term is its number.
        terms: i8[t], numbers of the distinct terms, object by object.
        term_offsets: i8[n + 1], the terms of object r are terms[term_offsets[r]:...].
        rows_of: The rows of each id.
    """

    def __init__(self, objects: Sequence[Members], arrival: Arrival = "event") -> None:
        self.has_arrivals = arrival == "event"
        self.members = objects
        self.ids: list[ObjectId] = [one["id"] for one in objects]
        self.keys = np.array([key_of(one) for one in self.ids], np.uint64)
        arrivals = arrivals_ms(objects) if self.has_arrivals else [0] * len(objects)
        self.arrivals = np.array(arrivals, np.int64)
        self.lon = np.array([one["lon"] for one in objects], np.float64)
        self.lat = np.array([one["lat"] for one in objects], np.float64)
        self.rows_of: dict[ObjectId, list[int]] = defaultdict(list)
        for row, one in enumerate(self.ids):
            self.rows_of[one].append(row)
        texts = [one.get("text") or "" for one in objects]
        # Once for each different text: made-up texts repeat a lot.
        terms_in = {text: Counter(terms_of(text)) for text in dict.fromkeys(texts)}
        self._take_texts([terms_in[text] for text in texts])
        self._texts = texts
        self._known_tokens: dict[bool, _Tokens] = {}

    def _take_texts(self, texts: list[Counter[str]]) -> None:
        self.lengths = np.array([text.total() for text in texts], np.int64)
        self.vocabulary = sorted({term for text in texts for term in text})
        self._numbers = {term: number for number, term in enumerate(self.vocabulary)}
        self.terms = np.array([self._numbers[t] for text in texts for t in text], np.int64)
        self.term_offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(text) for text in texts], out=self.term_offsets[1:])
        counts = np.array([text[t] for text in texts for t in text], np.int64)
        # The same by terms: the holders of each, and how often each holds it.
        order = np.argsort(self.terms, kind="stable")
        rows = np.repeat(np.arange(len(texts)), np.diff(self.term_offsets))
        self._holders, self._occurrences = rows[order], counts[order]
        numbers = np.arange(len(self.vocabulary) + 1)
        self._holder_offsets = np.searchsorted(self.terms[order], numbers)

    def __len__(self) -> int:
        """The number of objects."""
        return len(self.ids)

    @property
    def start_ms(self) -> int:
        """The begin of the lifetime of a query registered before all objects."""
        return int(self.arrivals[0])

    @property
    def now_ms(self) -> int:
        """The newest arrival."""
        return int(self.arrivals[-1])

    def holders(self, term: str) -> tuple[Rows, Rows]:
        """Returns the rows that hold a term, ascending, and how often each does."""
        number = self._numbers.get(term)
        if number is None:
            return _NO_ROWS, _NO_ROWS
        kept = slice(self._holder_offsets[number], self._holder_offsets[number + 1])
        return self._holders[kept], self._occurrences[kept]

    def arrived(self, after_ms: int | None, to_ms: int) -> tuple[int, int]:
        """Returns the rows (from, to) that arrived in (after, to]; None means no limit."""
        first = 0 if after_ms is None else np.searchsorted(self.arrivals, after_ms, "right")
        return int(first), int(np.searchsorted(self.arrivals, to_ms, "right"))

    def in_window(self, query: Members) -> tuple[int, int]:
        """Returns the rows (from, to) of a snapshot's window, which is closed."""
        if "window" not in query:
            return 0, len(self)
        assert self.has_arrivals, "a window in wall time cannot be computed afterwards"
        oldest_ms = self.now_ms - duration_ms(query["window"]) if len(self) else 0
        return int(np.searchsorted(self.arrivals, oldest_ms)), len(self)

    def in_lifetime(self, query: Members) -> tuple[int, int]:
        """Returns the rows (from, to) that arrived within a continuous query's lifetime."""
        if "ttl" not in query:
            return 0, len(self)
        assert self.has_arrivals, "a lifetime in wall time cannot be computed afterwards"
        return 0, int(np.searchsorted(self.arrivals, self._end_ms(query)))

    def is_over(self, query: Members) -> bool:
        """Returns whether a continuous query's lifetime has ended at the newest arrival."""
        return "ttl" in query and len(self) > 0 and self.now_ms >= self._end_ms(query)

    def _end_ms(self, query: Members) -> int:
        return self.start_ms + duration_ms(query["ttl"]) if len(self) else 0

    def satisfying(self, query: Members, first: int, last: int) -> Rows:
        """Returns which of the rows first ≤ row < last satisfy region, text and `where`."""
        mask = np.zeros(len(self), np.bool_)
        mask[first:last] = True
        if "text" in query:
            fold = query.get("fold", False)
            mask &= evaluate(parse(query["text"], fold=fold), self._tokens(fold).holding)
        if "region" in query:
            rows = np.flatnonzero(mask)
            mask[rows] = Region(query["region"]).mask(self.lon[rows], self.lat[rows])
        return self.where(query, np.flatnonzero(mask))

    def where(self, query: Members, rows: Rows) -> Rows:
        """Returns which of the rows satisfy the attribute filter of a query."""
        if not query.get("where"):
            return rows
        found = [satisfies(query["where"], self.members[row]) for row in rows.tolist()]
        return rows[np.array(found, np.bool_)]

    def attribute(self, row: int, name: str) -> Any:
        """Returns the value of an object's attribute, None if it has none."""
        return None if name in FIXED_MEMBERS else self.members[row].get(name)

    def _tokens(self, fold: bool) -> _Tokens:
        if fold not in self._known_tokens:
            tokens_in = {t: tokens_of(t, fold=fold) for t in dict.fromkeys(self._texts)}
            self._known_tokens[fold] = _Tokens([tokens_in[text] for text in self._texts])
        return self._known_tokens[fold]


class _Tokens:
    """The tokens of n texts."""

    def __init__(self, texts: list[list[str]]) -> None:
        self._tokens = texts
        rows_of: dict[str, list[int]] = defaultdict(list)
        for row, tokens in enumerate(texts):
            for token in dict.fromkeys(tokens):
                rows_of[token].append(row)
        self._token_rows = {token: np.array(rows) for token, rows in rows_of.items()}

    def holding(self, leaf: Leaf) -> Bools:
        """Returns bool[n], which texts satisfy a leaf."""
        mask = np.zeros(len(self._tokens), np.bool_)
        if isinstance(leaf, Beginning):
            known = [t for t in self._token_rows if t.startswith(leaf.start)]
            for token in known:
                mask[self._token_rows[token]] = True
            return mask
        rows = self._token_rows.get(leaf.tokens[0], _NO_ROWS)
        if len(leaf.tokens) > 1:
            kept = [holds(leaf, self._tokens[row]) for row in rows.tolist()]
            rows = rows[np.array(kept, np.bool_)]
        mask[rows] = True
        return mask


def key_of(one: ObjectId) -> int:
    """Returns the number by which an id is ordered."""
    return one if isinstance(one, int) else xxhash.xxh3_64_intdigest(one.encode())


def is_id(one: object) -> bool:
    """Returns whether a value from OUT can be an object's id; True is 1 in a dictionary."""
    return isinstance(one, int | str) and not isinstance(one, bool)
