"""Locators of standing range queries: the owner of the registry chooses one for each change.

A map that splits the vocabulary places a query only in the slots of its keys, one key a conjunction
(PS2Stream IV.C). The keys are fixed when the change is appended, so they are a property of the
query, whatever maps follow.

A later version of a query may have other keys than the one before. While the query changes, an
object meets one version in this slot and the other in that one, and would be reported by both of
them, or by none. So an earlier choice of where objects are reported stays valid: the locator of a
version begins with that of the version before, and adds the new conjunctions. A query whose region
changed, with its text unchanged, keeps its locator.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.kinds import KIND_RANGE, kind_number
from sirocco.index.standing.locators import (
    HOME,
    HOME_LOCATOR,
    Alternative,
    read_locator,
    write_alternatives,
    write_locator,
)
from sirocco.model.query import RangeQuery
from sirocco.model.text import term_hash
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import NO_PAST, NO_REVISION, Change
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.schemes.map.routing import RoutingArrays

# The positive and the negative terms of a conjunction, hashes.
Conjunction = tuple[tuple[int, ...], tuple[int, ...]]


def is_located(change: Change) -> bool:
    """Whether a change is of a query that has a locator: a range query without `track`."""
    return change.query is not None and kind_number(change.query) == KIND_RANGE


def alternatives_of(change: Change) -> tuple[Alternative, ...]:
    """Returns the locator of a query, also where it follows from the query itself."""
    return read_locator(change.locator) if change.locator else derived(change)


def derived(change: Change) -> tuple[Alternative, ...]:
    """Returns the locator of a query without an explicit one."""
    conjunctions = _conjunctions(change)
    if not conjunctions:
        return (HOME,)
    return tuple(Alternative(min(held), held, others) for held, others in conjunctions)


def keys_of(change: Change) -> list[int]:
    """Returns the keys that lead to the slots of a query; none where it is in all of them."""
    if not is_located(change):
        return []
    if not change.locator:
        return [min(held) for held, _ in _conjunctions(change)]
    keys = [one.key for one in read_locator(change.locator)]
    return [] if 0 in keys else keys


def _conjunctions(change: Change) -> list[Conjunction]:
    """Returns the positive and negative terms of each conjunction; none where the home decides.

    Stored objects of a query are found at their home: later ones must be found there too. Phrases
    and beginnings are no terms by which objects are routed.
    """
    query = change.query
    if not isinstance(query, RangeQuery) or query.expression is None or change.past_ms != NO_PAST:
        return []
    if query.expression.patterns:
        return []
    return [
        (tuple(map(term_hash, one.positive)), tuple(map(term_hash, one.negative)))
        for one in query.expression.conjunctions
    ]


@dataclass(frozen=True, slots=True)
class _Ranks:
    """The frequencies of a map's terms, for single conjunctions; an array call takes longer.

    Attributes:
        routing: of the map; None for none.
        frequencies: of terms; those that are missing are rare.
    """

    routing: RoutingArrays | None
    frequencies: dict[int, float]

    @classmethod
    def of(cls, routing: RoutingArrays) -> _Ranks:
        """Returns the frequencies of a map."""
        terms, frequencies = routing.frequent_terms.tolist(), routing.frequencies.tolist()
        return cls(routing, dict(zip(terms, frequencies, strict=True)))

    def least(self, terms: tuple[int, ...]) -> int:
        """Returns the least frequent term; of equal ones that of least hash (`least_frequent`)."""
        known = self.frequencies
        return min([(known.get(term, 0.0), term) for term in terms])[1]


@dataclass(slots=True)
class Locators:
    """The locators known to the owner of a registry partition; only maps by keyword need them.

    Attributes:
        live: query handle → locator of its newest version that has one.
        removed: the same of removed queries, the latest last.
        limits: of the router.
    """

    live: dict[int, bytes] = field(default_factory=dict)
    removed: dict[int, bytes] = field(default_factory=dict)
    limits: RouterLimits = field(default=LIMITS, compare=False)
    _ranks: _Ranks = field(default_factory=lambda: _Ranks(None, {}), compare=False)

    def choose(
        self,
        change: Change,
        routing: RoutingArrays | None,
        next_routing: RoutingArrays | None = None,
    ) -> bytes:
        """Returns the locator of a change that is to be appended; empty where it needs none.

        While a map by keyword is prepared, that map chooses: the change may reach its slots when
        objects are routed by it, and they meet the version before as well. A query with a locator
        keeps it under a map that splits space alone, too: objects routed by keyword may still be in
        transit.

        Args:
            change: its own locator is ignored.
            routing: of the map in force; None while there is none.
            next_routing: of the newest map that is prepared; None while there is none.
        """
        if routing is None or not is_located(change) or change.past_ms != NO_PAST:
            return b""
        known = self.live.get(change.handle) or self.removed.get(change.handle)
        if next_routing is not None and next_routing.is_by_keyword:
            if not routing.is_by_keyword and not known and change.expected_revision != NO_REVISION:
                return b""
            routing = routing if routing.is_by_keyword else next_routing
        elif not routing.is_by_keyword and known is None:
            return b""
        conjunctions = _conjunctions(change)
        keys = self._keys(conjunctions, routing)
        if known is not None:
            alternatives = _continued(
                read_locator(known),
                _alternatives(keys, conjunctions),
                self.limits.alternatives_max,
            )
            return b"" if alternatives == derived(change) else write_locator(alternatives)
        if keys == [min(held) for held, _ in conjunctions]:
            return b""
        return write_alternatives(
            (key, held, others) for key, (held, others) in zip(keys, conjunctions, strict=True)
        )

    def _keys(self, conjunctions: list[Conjunction], routing: RoutingArrays) -> list[int]:
        """Returns the key of each conjunction that the map prefers; see `least_frequent`."""
        if all(len(held) == 1 for held, _ in conjunctions):
            return [held[0] for held, _ in conjunctions]
        if self._ranks.routing is not routing:
            self._ranks = _Ranks.of(routing)
        return [self._ranks.least(held) for held, _ in conjunctions]

    def learn(self, change: Change, *, is_by_keyword: bool) -> None:
        """Takes a valid change, in the order of the log.

        Args:
            change: is in force.
            is_by_keyword: objects are routed, or may soon be, by a map that splits the vocabulary.
        """
        handle = change.handle
        if change.query is None:
            gone = self.live.pop(handle, None)
            if gone is not None:
                self.removed[handle] = gone
                if len(self.removed) > self.limits.removed_locators_max:
                    del self.removed[next(iter(self.removed))]
            return
        is_known = handle in self.live or handle in self.removed
        if not is_known and not is_by_keyword:
            return
        former = self.removed.pop(handle, None)
        if is_located(change):
            self.live[handle] = change.locator or _derived_locator(change)
        elif former is not None:
            self.live[handle] = former

    def knows(self, handles: NDArray[np.uint64]) -> bool:
        """Whether a change of one of these queries would be noted where maps split space alone."""
        if not self.live and not self.removed:
            return False
        listed = handles.tolist()
        live, removed = self.live.keys(), self.removed.keys()
        return not (live.isdisjoint(listed) and removed.isdisjoint(listed))

    def state(self) -> State:
        """Returns the state for a checkpoint."""
        entries = [*self.live.items(), *self.removed.items()]
        locators = [locator for _, locator in entries]
        offsets = np.cumsum([0, *map(len, locators)]).astype(np.int64)
        return {
            "located.handles": np.array([handle for handle, _ in entries], np.uint64),
            "located.live": np.array([len(self.live)], np.int64),
            "located.offsets": offsets,
            "located.bytes": np.frombuffer(b"".join(locators), np.uint8),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint, when nothing is known yet."""
        if "located.handles" not in state:
            return
        data, ends = state["located.bytes"].tobytes(), state["located.offsets"].tolist()
        entries = [
            (handle, data[ends[i] : ends[i + 1]])
            for i, handle in enumerate(state["located.handles"].tolist())
        ]
        live = int(state["located.live"][0])
        self.live, self.removed = dict(entries[:live]), dict(entries[live:])


def _derived_locator(change: Change) -> bytes:
    conjunctions = _conjunctions(change)
    if not conjunctions:
        return HOME_LOCATOR
    return write_alternatives((min(held), held, others) for held, others in conjunctions)


def _alternatives(keys: list[int], conjunctions: list[Conjunction]) -> tuple[Alternative, ...]:
    if not conjunctions:
        return (HOME,)
    return tuple(
        Alternative(key, held, others)
        for key, (held, others) in zip(keys, conjunctions, strict=True)
    )


def _continued(
    known: tuple[Alternative, ...], alternatives: tuple[Alternative, ...], alternatives_max: int
) -> tuple[Alternative, ...]:
    """Returns a locator that agrees with the one before on all its conjunctions."""
    if HOME in known:
        return known
    known_pairs = {(one.positive, one.negative) for one in known}
    fresh = [one for one in alternatives if (one.positive, one.negative) not in known_pairs]
    if len(known) + len(fresh) > alternatives_max:
        return alternatives
    return (*known, *fresh)
