"""Steps of terms and ranked queries that wait for more slots, and their checkpoint columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.model.objects import ObjectColumns, concat, pack_bytes
from sirocco.protocol.contract.columns import NO_EVENTS, EventColumns, QueryNames
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import NO_OBJECTS
from sirocco.protocol.merger.list_batch import bytes_of_objects, joined_names, joined_offsets
from sirocco.protocol.search.ranked_merge import Candidates
from sirocco.protocol.search.term_merge import TermCounts

# For arrays and entries of a step, and again for each of its parts: empty steps are kept too.
STEP_BYTES = 1_024
# A candidate's event key, length and distance.
_CANDIDATE_BYTES = 36


@dataclass(slots=True)
class Step:
    """A step that is not complete.

    Attributes:
        names: one row, the query.
        terms: parts of a terms step.
        ranked: parts of a ranked step.
        is_partial: it is sent although slots are missing.
        bytes_total: approximate size, the same however often it was saved and restored.
    """

    names: QueryNames
    terms: list[TermCounts] = field(default_factory=list)
    ranked: list[Candidates] = field(default_factory=list)
    is_partial: bool = False
    bytes_total: int = 0
    _ranked_bytes: int = 0

    def __post_init__(self) -> None:
        self._ranked_bytes = sum(map(_bytes_of, self.ranked))

    def add(self, candidates: Candidates) -> None:
        """Takes a part of a ranked step."""
        self.ranked.append(candidates)
        # Of this one alone: a step has parts of each slot.
        self._ranked_bytes += _bytes_of(candidates)

    def weigh(self) -> int:
        """Updates `bytes_total`; returns by how much it grew."""
        before, self.bytes_total = self.bytes_total, STEP_BYTES + self._ranked_bytes
        for part in self.terms:
            self.bytes_total += STEP_BYTES + len(part.terms) + 16 * len(part)
        return self.bytes_total - before


def _bytes_of(candidates: Candidates) -> int:
    objects = int(bytes_of_objects(candidates.objects).sum())
    entries = _CANDIDATE_BYTES * len(candidates) + candidates.frequencies.nbytes
    return STEP_BYTES + objects + entries


# The version's key, the time, and the step.
Pending = tuple[int, int, Step]


def pending_state(steps: Sequence[Pending]) -> State:
    """Returns steps as columns, with the parts of terms and of ranked steps step by step."""
    names = joined_names([step.names for _, _, step in steps]) if steps else None
    terms = [part for _, _, step in steps for part in step.terms]
    ranked = [part for _, _, step in steps for part in step.ranked]
    state: dict[str, NDArray[Any]] = {
        "steps.keys": np.array([key for key, _, _ in steps], np.uint64),
        "steps.at_ms": np.array([at_ms for _, at_ms, _ in steps], np.int64),
        "steps.term_parts": np.array([len(step.terms) for _, _, step in steps], np.int64),
        "steps.ranked_parts": np.array([len(step.ranked) for _, _, step in steps], np.int64),
    }
    if names is not None:
        assert names.specs is not None
        subscribers = [names.subscribers[row] for row in names.subscriber_rows.tolist()]
        state["steps.handles"] = names.handles
        state["steps.ids"], state["steps.id_offsets"] = names.ids, names.id_offsets
        _put_texts(state, "steps.subscribers", subscribers)
        _put_texts(state, "steps.specs", names.specs)
    _put_terms(state, terms)
    _put_ranked(state, ranked)
    return state


def _put_texts(state: dict[str, NDArray[Any]], name: str, texts: Sequence[str]) -> None:
    state[name], state[f"{name}.offsets"] = pack_bytes([text.encode() for text in texts])


def _put_terms(state: dict[str, NDArray[Any]], parts: Sequence[TermCounts]) -> None:
    state["terms.rows"] = np.cumsum([0, *map(len, parts)])
    if parts:
        state["terms.terms"] = np.concatenate([part.terms for part in parts])
        state["terms.offsets"] = joined_offsets([part.offsets for part in parts])
        state["terms.counts"] = np.concatenate([part.counts for part in parts])


def _put_ranked(state: dict[str, NDArray[Any]], parts: Sequence[Candidates]) -> None:
    state["ranked.rows"] = np.cumsum([0, *map(len, parts)])
    state["ranked.keywords"] = np.cumsum([0, *(len(part.holders) for part in parts)])
    if parts:
        state["ranked.slots"] = np.array([part.slot for part in parts], np.int64)
        totals = [(part.total, part.tokens) for part in parts]
        state["ranked.totals"] = np.array(totals, np.int64).reshape(-1, 2)
        state["ranked.holders"] = np.concatenate([part.holders for part in parts])
        state["ranked.lengths"] = np.concatenate([part.lengths for part in parts])
        state["ranked.distances_m"] = np.concatenate([part.distances_m for part in parts])
        state["ranked.frequencies"] = np.concatenate([part.frequencies.ravel() for part in parts])
        _put_columns(state, "ranked.objects", concat([part.objects for part in parts]))
        _put_columns(state, "ranked.events", EventColumns.concat([part.events for part in parts]))


def _put_columns(
    state: dict[str, NDArray[Any]], name: str, columns: ObjectColumns | EventColumns
) -> None:
    for each in fields(columns):
        state[f"{name}.{each.name}"] = getattr(columns, each.name)


def pending_steps(state: State) -> Iterator[Pending]:
    """The inverse of `pending_state`."""
    count = len(state["steps.keys"])
    if not count:
        return
    terms, ranked = _term_parts(state), _ranked_parts(state)
    ids, bounds = state["steps.ids"].tobytes(), state["steps.id_offsets"].tolist()
    subscribers, specs = _texts(state, "steps.subscribers"), _texts(state, "steps.specs")
    for i in range(count):
        query_id = np.frombuffer(ids[bounds[i] : bounds[i + 1]], np.uint8)
        names = QueryNames(
            state["steps.handles"][i : i + 1],
            query_id,
            np.array([0, len(query_id)], np.int64),
            np.zeros(1, np.uint32),
            (subscribers[i],),
            (specs[i],),
        )
        step = Step(
            names,
            [next(terms) for _ in range(int(state["steps.term_parts"][i]))],
            [next(ranked) for _ in range(int(state["steps.ranked_parts"][i]))],
        )
        yield int(state["steps.keys"][i]), int(state["steps.at_ms"][i]), step


def _texts(state: State, name: str) -> list[str]:
    data = state[name].tobytes()
    return [data[begin:end].decode() for begin, end in pairwise(state[f"{name}.offsets"].tolist())]


def _term_parts(state: State) -> Iterator[TermCounts]:
    for begin, end in pairwise(state["terms.rows"].tolist()):
        offsets = state["terms.offsets"][begin : end + 1]
        terms = state["terms.terms"][offsets[0] : offsets[-1]]
        yield TermCounts(terms, offsets - offsets[0], state["terms.counts"][begin:end])


def _ranked_parts(state: State) -> Iterator[Candidates]:
    rows, keywords = state["ranked.rows"].tolist(), state["ranked.keywords"].tolist()
    if len(rows) == 1:
        return
    objects = _columns(state, "ranked.objects", ObjectColumns, NO_OBJECTS)
    events = _columns(state, "ranked.events", EventColumns, NO_EVENTS)
    at = 0
    for i, ((begin, end), (first, last)) in enumerate(
        zip(pairwise(rows), pairwise(keywords), strict=True)
    ):
        total, tokens = state["ranked.totals"][i].tolist()
        size = (end - begin) * (last - first)
        yield Candidates(
            slot=int(state["ranked.slots"][i]),
            total=total,
            tokens=tokens,
            holders=state["ranked.holders"][first:last],
            objects=objects.slice(begin, end),
            events=events.slice(begin, end),
            lengths=state["ranked.lengths"][begin:end],
            distances_m=state["ranked.distances_m"][begin:end],
            frequencies=state["ranked.frequencies"][at : at + size].reshape(
                end - begin, last - first
            ),
        )
        at += size


def _columns(state: State, name: str, kind: Any, empty: Any) -> Any:
    return kind(**{each.name: state[f"{name}.{each.name}"] for each in fields(empty)})
