"""By which locators range queries are found by objects that reach several of their slots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.locators import HOME_LOCATOR
from sirocco.model.patterns import pattern_rows
from sirocco.protocol.contract.messages import NO_PAST, Installed


def installed_locators(message: Installed, chosen: NDArray[np.intp]) -> list[bytes] | None:
    """Returns the locators of range queries of a message; None if all follow from the queries."""
    found = locators_of(message.rows, message.locators, message.past_ms != NO_PAST)
    return None if found is None else [found[row] for row in chosen.tolist()]


def locators_of(
    queries: QueryRows, locators: Sequence[bytes] | None, with_past: NDArray[np.bool_]
) -> list[bytes] | None:
    """Returns the locators of range queries; None if all follow from the queries.

    Args:
        queries: n of them.
        locators: their own, empty for none; None for none at all.
        with_past: bool[n], which ask for the past.
    """
    is_home = with_past | _have_patterns(queries)
    if locators is None and not is_home.any():
        return None
    # Stored objects of a query are found at their home: later ones must be found there too. And no
    # object is routed by a phrase.
    own = locators or (b"",) * len(queries)
    return [
        each or (HOME_LOCATOR if is_at_home else b"")
        for each, is_at_home in zip(own, is_home.tolist(), strict=True)
    ]


def _have_patterns(queries: QueryRows) -> NDArray[np.bool_]:
    """Returns bool[n], which queries name phrases or beginnings of words."""
    found = np.zeros(len(queries), np.bool_)
    rows = pattern_rows(queries.words, queries.word_offsets)
    if not len(rows):
        return found
    for offsets, words in (
        (queries.pos_offsets, queries.pos_word_rows),
        (queries.neg_offsets, queries.neg_word_rows),
    ):
        ends = offsets[queries.conj_offsets]
        owners = np.repeat(np.arange(len(queries)), np.diff(ends))
        found[owners[np.isin(words, rows)]] = True
    return found
