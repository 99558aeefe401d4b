"""Objects by number, of which only those still referenced are kept."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.track.last_objects import NOT_KNOWN, LastObjects
from tests.support.values import columns_of, terms_of


def rows_of(ids: list[int]) -> StoredRows:
    objects = columns_of([{"id": i, "lon": 1, "lat": 1, "text": f"a w{i}"} for i in ids])
    count, terms = len(ids), terms_of(objects)
    return StoredRows(
        objects=objects,
        sessions=np.full(count, 7, np.uint64),
        numbers=objects.ids.copy(),
        arrivals_ms=np.arange(count, dtype=np.int64),
        seqs=np.zeros(count, np.int64),
        lengths=terms.lengths,
        term_offsets=terms.offsets,
        terms=terms.terms,
        counts=terms.counts,
    )


@pytest.mark.parametrize("seed", range(10))
def test_what_is_named_is_found_whatever_was_forgotten(seed: int) -> None:
    rng, kept = np.random.default_rng(seed), LastObjects(garbage_min=5)
    number_of: dict[int, int] = {}
    for begin in range(0, 400, 8):
        ids = list(range(begin, begin + int(rng.integers(1, 8))))
        first = kept.add(rows_of(ids))
        number_of |= {each: first + i for i, each in enumerate(ids)}
        number_of = {each: number for each, number in number_of.items() if rng.random() < 0.9}
        row_bytes = np.array([sum(kept.weights[number] for number in number_of.values())])
        if kept.is_crowded(len(number_of), row_bytes):
            named = [*number_of.values(), NOT_KNOWN]
            renamed = kept.keep(np.array(named, np.int32))
            number_of = {each: int(renamed[number]) for each, number in number_of.items()}
            assert len(kept) == len(set(number_of.values()))
        assert len(kept._chunks) <= 12
        if number_of:
            chosen = rng.choice(list(number_of), 5)
            found = kept.take(np.array([number_of[each] for each in chosen.tolist()]))
            assert found.objects.ids.tolist() == chosen.tolist(), f"seed={seed}"
            assert found.numbers.tolist() == chosen.tolist()
