"""The list of a ranked query's step: reports of slots, scored and put in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.model.objects import ObjectColumns, concat
from sirocco.model.query import HALF_LIVES_AHEAD_MAX, RankedQuery
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.messages import Found

# BM25, as the public contract fixes it.
_K1 = 1.2
_B = 0.75

# Candidates whose scores are found together: with 64 keywords the columns of so many stay in the
# processor's caches, those of a million would take 2 GB.
_ROWS_AT_ONCE = 1_024


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Candidates:
    """One slot's report about a step, or several slots' together; q keywords in the query's order.

    Attributes:
        slot: whose totals these are; -1 for several together.
        total: objects of the window within the radius.
        tokens: sum of their lengths.
        holders: u8[q], how many of them hold each keyword.
        objects: c rows, those that may be among the best.
        events: c rows.
        lengths: u4[c], tokens of each.
        distances_m: f8[c], from the query's point.
        frequencies: u2[c, q], how often each holds each keyword.
    """

    slot: int
    total: int
    tokens: int
    holders: NDArray[np.uint64]
    objects: ObjectColumns
    events: EventColumns
    lengths: NDArray[np.uint32]
    distances_m: NDArray[np.float64]
    frequencies: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of(cls, found: Found, row: int) -> Candidates:
        """Returns a copy of a step of a record."""
        steps = found.steps
        assert steps is not None
        first, last = steps.holder_offsets[row : row + 2].tolist()
        begin, end = steps.candidate_offsets[row : row + 2].tolist()
        # Where the frequencies of the step begin: those of each step before it take as many as it
        # has candidates times keywords.
        holders, candidates = np.diff(steps.holder_offsets), np.diff(steps.candidate_offsets)
        at = int((holders[:row] * candidates[:row]).sum())
        width, count = last - first, end - begin
        rows = steps.candidates[begin:end].astype(np.int64)
        return cls(
            slot=int(found.intervals.sources[steps.interval_rows[row]]),
            total=int(steps.totals[row, 0]),
            tokens=int(steps.totals[row, 1]),
            holders=steps.holders[first:last].copy(),
            objects=found.objects.take(rows),
            events=found.events.take(rows),
            lengths=steps.token_counts[begin:end].copy(),
            distances_m=steps.distances_m[begin:end].copy(),
            frequencies=steps.frequencies[at : at + count * width].reshape(count, width).copy(),
        )


def joined(parts: Sequence[Candidates]) -> Candidates:
    """Adds up the reports of slots.

    A slot may have repeated a part, with other candidates besides those that matter: it counts
    once, and so does each of its candidates.
    """
    if len(parts) == 1:
        return parts[0]
    totals: dict[int, tuple[int, int, NDArray[np.uint64]]] = {}
    for part in parts:
        # The totals are in the first part; the others have zeros.
        if part.total or part.slot not in totals:
            totals[part.slot] = part.total, part.tokens, part.holders
    events = EventColumns.concat([part.events for part in parts])
    keys = np.stack([events.sessions, events.numbers], axis=1)
    _, firsts = np.unique(keys, axis=0, return_index=True)
    rows = np.sort(firsts)
    return Candidates(
        slot=-1,
        total=sum(total for total, _, _ in totals.values()),
        tokens=sum(tokens for _, tokens, _ in totals.values()),
        holders=np.sum([holders for _, _, holders in totals.values()], axis=0, dtype=np.uint64),
        objects=concat([part.objects for part in parts]).take(rows),
        events=events.take(rows),
        lengths=np.concatenate([part.lengths for part in parts])[rows],
        distances_m=np.concatenate([part.distances_m for part in parts])[rows],
        frequencies=np.concatenate([part.frequencies for part in parts])[rows],
    )


def best(
    query: RankedQuery, at_ms: int, found: Candidates
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Returns the k best candidates at a time.

    Returns:
        i8[r] rows of the candidates, best first, and f8[r] their scores, rounded to 1e-9.
    """
    if not len(found) or not found.tokens or not found.total:
        return np.empty(0, np.int64), np.empty(0)
    holders = found.holders.astype(np.float64)
    idf = np.log(1 + (found.total - holders + 0.5) / (holders + 0.5))
    mean = found.tokens / found.total
    bm25 = np.concatenate(
        [_bm25(found, idf, mean, begin) for begin in range(0, len(found), _ROWS_AT_ONCE)]
    )
    ages_ms = at_ms - found.events.arrivals_ms
    half_lives = np.minimum(-ages_ms / query.half_life_ms, HALF_LIVES_AHEAD_MAX)
    weights = query.weights
    scores = _rounded(
        weights.text * bm25 / bm25.max()
        + weights.space * (1 - found.distances_m / query.radius_m)
        + weights.time * np.exp2(half_lives)
    )
    events = found.events
    order = np.lexsort((events.numbers, events.sessions, found.objects.ids, -scores))[: query.k]
    return order, scores[order]


def _bm25(
    found: Candidates, idf: NDArray[np.float64], mean: float, begin: int
) -> NDArray[np.float64]:
    """Returns the scores by text of some candidates."""
    rows = slice(begin, begin + _ROWS_AT_ONCE)
    often = found.frequencies[rows].astype(np.float64)
    damped = _K1 * (1 - _B + _B * found.lengths[rows] / mean)
    scores: NDArray[np.float64] = (idf * often * (_K1 + 1) / (often + damped[:, None])).sum(axis=1)
    return scores


def _rounded(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rounds scores to 1e-9, each by its exact value as Python's `round` does it.

    NumPy rounds the products with 1e9, which are rounded themselves: distances of whole millimetres
    in a radius of 2,000 km are midway between two scores every other time.
    """
    products = scores * 1e9
    whole = np.rint(products)
    rounded = whole / 1e9
    middle = np.flatnonzero(np.abs(np.abs(products - whole) - 0.5) < 1e-6)
    rounded[middle] = [round(score, 9) for score in scores[middle].tolist()]
    return rounded
