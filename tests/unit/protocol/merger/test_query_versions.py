"""When ended versions of standing queries may be forgotten."""

from __future__ import annotations

import numpy as np

from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.merger.query_versions import Versions
from tests.support.merger_states import state_of


def test_an_end_is_remembered_until_all_have_come_to_it() -> None:
    versions = Versions()
    assert versions.end(1, (2, 10), 2_000)
    assert not versions.end(1, (2, 10), 2_500)
    assert versions.has_ended(1)
    # Not before the registry's checkpoint is past the change.
    assert not versions.may_settle({2: 10, 1: 99})
    versions.settle({2: 10, 1: 99}, np.array([5, 5]))
    assert versions.forget(np.array([9, 9]), 9_000) == []
    assert versions.may_settle({2: 11})
    versions.settle({2: 11}, np.array([5, 7]))
    assert not versions.may_settle({2: 99})
    # Not before each slot has reached its log's end of then, and has reported its time.
    assert versions.forget(np.array([9, 6]), 9_000) == []
    assert versions.forget(np.array([5, 7]), 2_499) == []
    assert versions.has_ended(1)
    assert versions.forget(np.array([5, 7]), 2_500) == [1]
    assert not versions.has_ended(1)
    assert len(versions) == 0


def test_ends_of_several_parts_of_the_registry_are_settled_each_by_its_own() -> None:
    versions = Versions()
    for key, place in enumerate([(0, 5), (1, 5), (0, 6), (1, 4)]):
        versions.end(key, place, NO_TIME_MS)
    versions.settle({0: 6, 1: 5}, np.array([1]))
    versions.settle({0: 7, 1: 5}, np.array([2]))
    assert versions.forget(np.array([1]), NO_TIME_MS) == [0, 3]
    assert versions.forget(np.array([2]), NO_TIME_MS) == [2]
    assert [key for key in range(4) if versions.has_ended(key)] == [1]


def test_of_too_many_ends_the_first_are_forgotten() -> None:
    versions = Versions(ends_max=3)
    for key in (5, 9, 1):
        versions.end(key, (0, key), NO_TIME_MS)
    assert versions.forget_early() == []
    versions.settle({0: 6}, np.array([4]))
    for key in (7, 8):
        versions.end(key, (0, key), NO_TIME_MS)
    assert versions.forget_early() == [5, 9]
    assert (len(versions), versions.early) == (3, 2)
    # The others stay as they were, also after a takeover.
    successor = Versions(ends_max=3)
    successor.restore(state_of(versions))
    for each in (versions, successor):
        assert each.may_settle({0: 9})
        each.settle({0: 9}, np.array([6]))
        each.end(6, (0, 9), NO_TIME_MS)
    assert versions.forget(np.array([4]), NO_TIME_MS) == [1]
    assert versions.forget(np.array([6]), NO_TIME_MS) == [7, 8]
    assert successor.forget_early() == [1]
    assert successor.forget(np.array([6]), NO_TIME_MS) == [7, 8]


def test_a_successor_determines_the_positions_of_ends_again() -> None:
    versions, successor = Versions(), Versions()
    versions.end(1, (2, 10), 2_000)
    versions.settle({2: 11}, np.array([5]))
    successor.restore(state_of(versions))
    assert successor.has_ended(1)
    assert successor.forget(np.array([5]), 9_000) == []
    assert successor.may_settle({2: 11})
    assert not successor.may_settle({2: 10})
    successor.settle({2: 11}, np.array([8]))
    assert successor.forget(np.array([8]), 1_999) == []
    assert successor.forget(np.array([8]), 2_000) == [1]
