"""An object of very many matches: owners of a slot may send other candidates of knn queries.

They know other objects of other slots, and so another radius. What range queries report, and
which lists knn queries get, does not depend on where one owner ends and the next one begins.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from sirocco.model.query import query_handle
from sirocco.protocol.contract.messages import Found
from sirocco.protocol.contract.record_sizes import RecordLimits
from sirocco.protocol.evaluator.reports.match_records import Report
from sirocco.protocol.evaluator.reports.partial_records import founds
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.evaluator.standing.query_families import KNN
from tests.support.list_records import ListChange
from tests.support.merger_cluster import MergerCluster
from tests.support.slot_log import INTAKE_PARTITIONS
from tests.support.values import installed_of, routed_of

RANGES = [f"range{i}" for i in range(20)]
NEAREST = [f"near{i}" for i in range(20)]
LIMITS = RecordLimits(matches_max=4)
OBJECT = {"id": 5, "lon": 1, "lat": 1, "text": "x"}


def owner(silent: set[str], ranges: list[str] = RANGES) -> Slot:
    """Returns an owner of the slot; it knows objects that the `silent` queries are nearer to."""
    slot = Slot(0, 1)
    slot.open(0, 0, INTAKE_PARTITIONS, 0)
    changes: list[tuple[int, dict[str, Any]]] = [
        (i, {"id": name, "kind": "range", "mode": "continuous"}) for i, name in enumerate(ranges)
    ]
    near: dict[str, Any] = {
        "kind": "knn",
        "mode": "continuous",
        "point": {"lon": 0, "lat": 0},
        "k": 1,
    }
    changes += [(i, {"id": name, **near}) for i, name in enumerate(NEAREST, 100)]
    slot.take([(0, installed_of(0, [(i, members, "s", 0) for i, members in changes]))])
    table = slot.standing.families[KNN].table
    for name in silent:
        row = int(table.find(np.array([query_handle(name)], np.uint64))[0])
        one = np.ones(1, np.uint64)
        slot.standing.knn.seed(row, one, one, one, np.ones(1))
    return slot


def records(silent: set[str], ranges: list[str] = RANGES) -> list[Found]:
    """Returns what an owner reports of the object."""
    reports = owner(silent, ranges).take([(1, routed_of(0, 0, [OBJECT], [1]))])
    return [found for _, found in founds(reports, LIMITS)]


def reports_of(log: list[Found]) -> tuple[Counter[int], set[str]]:
    """Returns how often each range query reported the object, and the lists that have it."""
    cluster = MergerCluster(log=log, slots=1)
    cluster.read(len(log), np.random.default_rng(len(log)))
    ranges: Counter[int] = Counter()
    lists: set[str] = set()
    while sent := cluster.commit():
        for each in sent:
            if isinstance(each, ListChange):
                lists.add(each.query)
            else:
                ranges[each[1]] += 1
    return ranges, lists


FEW = {f"near{i}" for i in range(0, 20, 3)}
MANY = {f"near{i}" for i in range(0, 20, 2)}
ALL = set(NEAREST)


@pytest.mark.parametrize("silent", [(FEW, MANY), (MANY, FEW), (ALL, FEW), (FEW, ALL), (set(), ALL)])
@pytest.mark.parametrize("ranges", [RANGES, RANGES[:3], []])
def test_r2_a_successor_with_other_candidates_loses_and_doubles_nothing(
    silent: tuple[set[str], set[str]], ranges: list[str]
) -> None:
    former, latter = (records(each, ranges) for each in silent)
    for sent in range(len(former) + 1):
        matches, lists = reports_of([*former[:sent], *latter, *former[sent:]])
        assert matches == Counter(query_handle(name) for name in ranges), sent
        # The owner that completed the object has sent all that it found.
        completed = silent[0] if sent == len(former) else silent[1]
        assert lists >= ALL - completed, sent


def test_the_parts_of_range_queries_do_not_depend_on_candidates() -> None:
    parts = []
    for silent in (set[str](), MANY, ALL):
        reports = owner(silent).take([(1, routed_of(0, 0, [OBJECT], [1]))])
        report = reports[-1]
        assert isinstance(report, Report)
        found = [found for _, found in founds([report], LIMITS)][:4]
        parts.append(
            [(each.intervals.begins.tolist(), set(each.queries.handles.tolist())) for each in found]
        )
    assert parts[0] == parts[1] == parts[2]


def test_records_of_the_version_before_are_read_as_before() -> None:
    # init: a version that cuts all matches by their handles, candidates among them.
    reports = owner(FEW).take([(1, routed_of(0, 0, [OBJECT], [1]))])
    for report in reports:
        assert isinstance(report, Report)
        report.are_candidates = None
    former = [found for _, found in founds(reports, LIMITS)]
    assert any(len(set(map(bool, each.queries.specs or ()))) == 2 for each in former)

    # test, check: repeated from any place on, and followed by what a new version repeats.
    for begin in range(len(former)):
        for end in range(begin, len(former) + 1):
            matches, lists = reports_of([*former[:end], *former[begin:], *records(MANY)])
            assert matches == Counter(map(query_handle, RANGES))
            assert lists == ALL - FEW
