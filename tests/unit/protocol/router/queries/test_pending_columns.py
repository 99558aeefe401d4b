"""The table of pending changes in columns, against a dictionary."""

from __future__ import annotations

import random
from typing import cast

import numpy as np
import pytest

from sirocco.protocol.router.queries.pending_changes import ColumnBatch
from sirocco.protocol.router.queries.pending_columns import ROWS_MAX, PendingColumns


@pytest.mark.parametrize("seed", range(4))
def test_random_batches_are_those_of_a_dictionary(seed: int) -> None:
    dice = random.Random(seed)
    columns, model = PendingColumns(), dict[int, tuple[object, int]]()
    handles = np.arange(1, 60, dtype=np.uint64)
    for _ in range(120):
        free = [handle for handle in handles.tolist() if handle not in model]
        if free and dice.random() < 0.4:
            batch = cast(ColumnBatch, object())
            some = dice.sample(free, dice.randint(1, min(9, len(free))))
            rows = dice.sample(range(ROWS_MAX), len(some))
            columns.put(batch, np.array(some, np.uint64), np.array(rows))
            model |= {h: (batch, row) for h, row in zip(some, rows, strict=True)}
        elif model and dice.random() < 0.5:
            some = dice.sample(list(model), dice.randint(1, len(model)))
            own = np.array(some, np.uint64)
            columns.drop(own, columns.find(own))
            for handle in some:
                del model[handle]
        else:
            handle = dice.choice(handles.tolist())
            assert columns.take(handle) == model.pop(handle, None)
        numbers = columns.find(handles)
        found = {
            int(handles[place]): (batch, int(row))
            for batch, places, rows in columns.by_batch(numbers)
            for place, row in zip(places, rows, strict=True)
        }
        assert found == model
        assert sorted(columns.handles()) == sorted(model)
        assert len(columns) == len(model)
    # Places of batches are used again.
    assert len(columns._batches) < 40


def test_a_batch_that_is_too_long_has_no_room() -> None:
    assert PendingColumns().has_room(ROWS_MAX)
    assert not PendingColumns().has_room(ROWS_MAX + 1)
