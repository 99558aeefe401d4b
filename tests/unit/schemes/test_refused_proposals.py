"""Maps that are proposed with a gap or an overlap, or for another one: refused, with the reason."""

from __future__ import annotations

import copy

import pytest

from sirocco.model.errors import FailedPrecondition, InvalidArgument
from sirocco.protocol.control import ControlView
from sirocco.protocol.declarations import LeaderElected
from sirocco.protocol.map_change import check_proposal, progress
from sirocco.schemes.map import Leaf
from sirocco.schemes.map_bytes import to_bytes
from sirocco.schemes.sample import empty_sample
from sirocco.schemes.scheme import SCHEMES
from tests.unit.protocol.values import map_activated

SLOTS = 4
MIDDLE = (-10.0, -90.0, 0.0, 90.0)


def of_tiles(*boxes, version=2):
    """The bytes of a map that does not check itself, as another program may have written it."""
    made = SCHEMES["uniform-grid"].build(empty_sample(), len(boxes), SLOTS).with_version(version)
    unchecked = copy.copy(made)
    leaves = tuple(Leaf(number, box) for number, box in enumerate(boxes))
    object.__setattr__(unchecked, "leaves", leaves)
    return to_bytes(unchecked)


def halves(border, begin):
    return (-180.0, -90.0, border, 90.0), (begin, -90.0, 180.0, 90.0)


@pytest.mark.parametrize(
    ("data", "error", "reason"),
    [
        (of_tiles(*halves(-10.0, 0.0)), InvalidArgument, "gap"),
        (of_tiles(*halves(0.0, -10.0)), InvalidArgument, "overlap"),
        (of_tiles(*halves(0.0, 0.0), MIDDLE), InvalidArgument, "overlap"),
        (of_tiles(*halves(0.0, 0.0), version=1), FailedPrecondition, "version 1 is in force"),
        (of_tiles(*halves(0.0, 0.0), version=7), FailedPrecondition, "not 7"),
    ],
    ids=["gap", "overlap", "twice", "the same version", "another version"],
)
def test_what_does_not_fit_is_refused_with_the_reason_and_the_old_map_stays(data, error, reason):
    view = ControlView()
    view.apply(0, LeaderElected("c"))
    view.apply(1, map_activated(0))
    with pytest.raises(error, match=reason):
        check_proposal(data, view, SLOTS, progress(view, 1, 1))
    assert view.map_version == 1
    sound = check_proposal(of_tiles(*halves(0.0, 0.0)), view, SLOTS, progress(view, 1, 1))
    assert sound.version == 2
