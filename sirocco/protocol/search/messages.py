"""Messages between mergers and evaluators about a search, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.model.objects import ObjectColumns
from sirocco.model.query import Query
from sirocco.protocol.contract.columns import NO_EVENTS, EventColumns
from sirocco.protocol.contract.messages import NEVER_MS, NO_OBJECTS, NO_ROWS
from sirocco.protocol.search.term_merge import TermCounts

# The state of a slot after a part; the numbers are those of the contract.
MORE = 1
DONE = 2
MOVED = 3

# The begin of a window without limit.
EVER_MS = -NEVER_MS

_NO_STATES = np.empty(0, np.uint8)
_NO_ENDS = np.empty(0, np.int64)
_NO_VALUES = np.empty(0, np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to an evaluator about some of its slots.

    Attributes:
        query: of mode snapshot.
        slots: ascending.
        nearby: knn: slots that are also answered for if that costs little, ascending; an answer
            without them is complete.
        now_ms: the moment that is asked about, epoch ms.
        from_ms, upto_ms: arrivals that count, both ends included.
        position_token: a slot answers when it has taken everything up to it; empty for none.
        timeout_ms: how long the answer is waited for.
        radius_m: knn: objects that are farther away do not count; None for no bound.
        answers: into how many answers the search is split at most.
        parts: how many parts may be sent at first.
        takes_numbers: terms: the sums may use numbers under the evaluators' key.
        leftovers_of: the map version whose leftovers are wanted; 0 for none.
        listed: terms: how many of the most frequent will do at first; 0 for all.
    """

    query: Query
    slots: tuple[int, ...]
    now_ms: int
    from_ms: int
    upto_ms: int
    position_token: str
    timeout_ms: int
    radius_m: float | None
    answers: int
    parts: int
    nearby: tuple[int, ...] = ()
    takes_numbers: bool = False
    leftovers_of: int = 0
    listed: int = 0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Leftovers:
    """What former maps have put into a slot, seen by a later one (`search.leftovers`).

    Attributes:
        slot: its number.
        epoch: of the owner.
        version: of the map.
        leaves: i4[l], ascending: each object in memory is where the map puts it, or in one of them.
        archived_upto_ms: the greatest arrival outside memory, which may be in any leaf; None if
            there is none.
    """

    slot: int
    epoch: int
    version: int
    leaves: NDArray[np.int32]
    archived_upto_ms: int | None

    @property
    def is_empty(self) -> bool:
        """Whether all objects are where the map puts them."""
        return not len(self.leaves) and self.archived_upto_ms is None


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """What the ranking has to know of the part's objects and of all others; q keywords.

    Attributes:
        objects: of the window within the radius.
        tokens: sum of their lengths.
        holders: u8[q], how many of them hold each keyword, in the query's order.
        lengths: u4[n], tokens of each candidate.
        frequencies: u2[n, q], how often each candidate holds each keyword.
    """

    objects: int
    tokens: int
    holders: NDArray[np.uint64]
    lengths: NDArray[np.uint32]
    frequencies: NDArray[np.uint16]

    def slice(self, begin: int, end: int) -> Ranking:
        """Returns candidates `begin` to before `end`; only the first slice has the totals."""
        share = self if begin == 0 else replace(self, objects=0, tokens=0, holders=self.holders * 0)
        return replace(
            share, lengths=self.lengths[begin:end], frequencies=self.frequencies[begin:end]
        )


@dataclass(frozen=True, slots=True, eq=False)
class TermSums:
    """Terms and how many objects hold them; t rows, of which the first m have their texts.

    Attributes:
        hashes: u8[t], numbers of terms.
        counts: u8[t]
        texts: u1[b], UTF-8.
        text_offsets: i8[m + 1]
        numbering: `TermHashing.id` of the numbers.
    """

    hashes: NDArray[np.uint64]
    counts: NDArray[np.uint64]
    texts: NDArray[np.uint8]
    text_offsets: NDArray[np.int64]
    numbering: int = 0

    def __len__(self) -> int:
        return len(self.hashes)


NO_TERM_SUMS = TermSums(
    np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint8), np.zeros(1, np.int64)
)
NO_TERM_COUNTS = TermCounts(np.empty(0, np.uint8), np.zeros(1, np.int64), np.empty(0, np.uint64))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Part:
    """A part of an answer to a question.

    Attributes:
        slots: u4[s], the slots it is about.
        states: u1[s], `MORE`, `DONE` or `MOVED`.
        row_ends: i8[s], of a range answer: the row after each slot's last; empty otherwise.
        objects: n rows.
        events: n rows.
        distances_m: f8[n], from the query's point; empty for range and terms.
        terms: of a terms answer.
        rest: of a list of terms: no other one has more objects; None if all that matter are here.
        ranking: of a ranked answer.
        is_last: it is the last part for this question.
        is_waiting: some slot has not reached the position token.
        map_version: the newest by which anything was routed that the asked slots have taken, marks
            included.
        leftovers: of some of the slots, if they are known and were wanted.
        origin: what objects and events were read from, to pass on all of them; None where they were
            made here.
    """

    slots: NDArray[np.uint32] = field(default_factory=lambda: NO_ROWS)
    states: NDArray[np.uint8] = field(default_factory=lambda: _NO_STATES)
    row_ends: NDArray[np.int64] = field(default_factory=lambda: _NO_ENDS)
    objects: ObjectColumns = NO_OBJECTS
    events: EventColumns = NO_EVENTS
    distances_m: NDArray[np.float64] = field(default_factory=lambda: _NO_VALUES)
    terms: TermSums = NO_TERM_SUMS
    rest: int | None = None
    ranking: Ranking | None = None
    is_last: bool = False
    is_waiting: bool = False
    map_version: int = 0
    leftovers: tuple[Leftovers, ...] = ()
    origin: object = field(default=None, compare=False, repr=False)

    def slots_in(self, state: int) -> list[int]:
        """Returns the slots in a state."""
        slots, states = self.slots.tolist(), self.states.tolist()
        return [slot for slot, own in zip(slots, states, strict=True) if own == state]


@dataclass(frozen=True, slots=True, eq=False)
class AnswerRows:
    """The rows of an answer, in its order.

    Attributes:
        objects: n rows; none of a terms query.
        events: n rows.
        values: f8[n], metres or score.
        terms: of a terms query.
    """

    objects: ObjectColumns = NO_OBJECTS
    events: EventColumns = NO_EVENTS
    values: NDArray[np.float64] = field(default_factory=lambda: _NO_VALUES)
    terms: TermCounts = NO_TERM_COUNTS


NO_ANSWER = AnswerRows()
