"""The columns of removed queries, against a dictionary."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sirocco.protocol.evaluator.slot.removed_queries import NO_REMOVAL, UNKNOWN, RemovedQueries

Model = dict[int, tuple[int, int]]


def _column(handles: list[int]) -> np.ndarray:
    return np.array(handles, np.uint64)


def _check(removed: RemovedQueries, model: Model) -> None:
    handles = list(range(1, 40))
    sources, revisions = removed.find(_column(handles))
    known = [model.get(handle, (UNKNOWN, NO_REMOVAL)) for handle in handles]
    assert list(zip(sources.tolist(), revisions.tolist(), strict=True)) == known
    assert len(removed) == len(model)


def _removed(model: Model, handles: list[int], source: int, revisions: list[int]) -> None:
    for handle, revision in zip(handles, revisions, strict=True):
        model[handle] = source, max(revision, model.get(handle, (0, NO_REMOVAL))[1])


def test_the_greatest_of_equal_removals_counts() -> None:
    removed = RemovedQueries()
    removed.put(_column([5, 6, 5]), 1, np.array([9, 3, 7]))
    _check(removed, {5: (1, 9), 6: (1, 3)})
    removed.put(_column([5]), 2, np.array([8]))
    _check(removed, {5: (2, 9), 6: (1, 3)})


@pytest.mark.parametrize("seed", range(6))
def test_random_removals_are_those_of_a_dictionary(seed: int) -> None:
    dice = random.Random(seed)
    removed, model = RemovedQueries(), Model()
    for step in range(200):
        handles = [dice.randrange(1, 40) for _ in range(dice.randrange(1, 9))]
        revisions = [dice.randrange(step + 5) for _ in handles]
        match dice.choice(("remove", "remove", "expire", "enter", "floor", "save")):
            case "remove":
                source = dice.randrange(3)
                removed.put(_column(handles), source, np.array(revisions))
                _removed(model, handles, source, revisions)
            case "expire":
                ended = dict(zip(handles, revisions, strict=True))
                removed.put_expired(_column(list(ended)), np.array(list(ended.values())))
                for handle, revision in ended.items():
                    model[handle] = model.get(handle, (UNKNOWN, 0))[0], revision
            case "enter":
                removed.forget_expired(_column(handles))
                for handle in handles:
                    if model.get(handle, (0, 0))[0] == UNKNOWN:
                        del model[handle]
            case "floor":
                source, floor = dice.randrange(3), dice.randrange(step + 1)
                removed.forget_below(source, floor)
                model = {
                    h: each for h, each in model.items() if each[0] != source or each[1] >= floor
                }
            case "save":
                state = removed.state()
                removed = RemovedQueries()
                removed.restore(state)
        _check(removed, model)
