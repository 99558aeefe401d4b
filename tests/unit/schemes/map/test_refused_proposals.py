"""Proposed maps with a gap or an overlap, or for another map, are refused with the reason."""

from __future__ import annotations

import copy
import dataclasses
import json
import tracemalloc
import zlib

import numpy as np
import pytest

from sirocco.model.errors import FailedPrecondition, InvalidArgument
from sirocco.protocol.contract.control_records import LeaderElected
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.map_change import check_proposal, progress
from sirocco.schemes.builders.scheme import SCHEMES
from sirocco.schemes.map import map_bytes
from sirocco.schemes.map.map import Leaf
from sirocco.schemes.map.map_bytes import MAGIC, from_bytes, to_bytes
from sirocco.schemes.workload.sample import empty_sample
from tests.support.values import map_activated

SLOTS = 4
MIDDLE = (-10.0, -90.0, 0.0, 90.0)


def of_tiles(*boxes, version=2):
    """Returns the bytes of an unchecked map, as another program may have written it."""
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


def of_header(**members):
    """Returns the bytes of a valid map with a wrong header."""
    plain = zlib.decompress(of_tiles(*halves(0.0, 0.0))[len(MAGIC) :])
    size = int.from_bytes(plain[:4], "little")
    head = json.dumps(json.loads(plain[4 : 4 + size]) | members).encode()
    return packed(head, plain[4 + size :])


def packed(head, columns=b""):
    return MAGIC + zlib.compress(len(head).to_bytes(4, "little") + head + columns, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("version", value)
            for value in ("2", "1_0", "\uff12", 2.5, True, None, [2], "9" * 5_000)
        ),
        *(("slots", value) for value in (4.5, "4", False)),
        ("scheme", None),
        ("scheme", 7),
        ("scheme", []),
        ("scheme", "x" * 1_000_000),
        ("world", ["-180", -90.0, 180.0, 90.0]),
        ("world", [-180.0, -90.0, 180.0, True]),
        ("world", [-180.0, -90.0, 180.0, 1e999]),
    ],
)
def test_numbers_of_another_kind_are_no_numbers(name, value):
    with pytest.raises(InvalidArgument) as caught:
        from_bytes(of_header(**{name: value}))
    # The quoted part stays short: errors are sent in trailers, which do not hold much.
    assert len(str(caught.value)) < 500


def test_bytes_that_inflate_too_far_are_refused_before_they_have(monkeypatch):
    monkeypatch.setattr(map_bytes, "INFLATED_BYTES_MAX", 1 << 20)
    data = packed(bytes(30_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidArgument, match="inflate too far"):
            from_bytes(data)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_header_that_inflates_is_refused_before_it_is_read():
    """Ten million numbers of ten kilobytes; a hundred million took two gigabytes and 9 s."""
    data = packed(b"[" + b"1," * 10_000_000 + b"1]")
    assert len(data) < 200_000
    tracemalloc.start()
    try:
        with pytest.raises(InvalidArgument, match="header"):
            from_bytes(data)
        # The bytes themselves, twice while they inflate, and no list of numbers.
        assert tracemalloc.get_traced_memory()[1] < 90_000_000
    finally:
        tracemalloc.stop()


def test_loads_without_a_sum_are_refused():
    made = SCHEMES["uniform-grid"].build(empty_sample(), 4, SLOTS)
    with pytest.raises(InvalidArgument, match="no sum"):
        dataclasses.replace(made, load_of_leaf=np.full(len(made.leaves), 1.7e308))
