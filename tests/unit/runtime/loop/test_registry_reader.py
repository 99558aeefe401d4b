"""Changes read back from the registry: all of them, or those at some offsets."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.protocol.contract.messages import REGISTRY, Prepare
from sirocco.runtime.loop import registry_reader
from sirocco.runtime.loop.hops import HopReader, HopWriter
from sirocco.runtime.loop.registry_reader import read_changes
from sirocco.transport.log import Record
from sirocco.transport.memory_log import MemoryLog
from tests.support.random_messages import change

PREPARED_AT = 4


@pytest.fixture
def filled(log: MemoryLog) -> MemoryLog:
    """Ten records of one registry partition, of which one is no change."""
    writer = HopWriter(log.producer("test"), lambda *_: None)
    rng = np.random.default_rng(1)
    for number in range(10):
        message = Prepare(2) if number == PREPARED_AT else change(rng, 0)
        writer.append(REGISTRY, 0, message, 0)
    return log


def test_all_changes_between_two_offsets_are_read(filled: MemoryLog) -> None:
    found = [offset for offset, _ in read_changes(filled, 0, 2, 8)]
    assert found == [2, 3, 5, 6, 7]


def test_only_changes_at_wanted_offsets_are_decoded(
    filled: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []

    class Counting(HopReader):
        def entries(self, records):  # type: ignore[no-untyped-def]
            decoded.extend(record.offset for record in records)
            return super().entries(records)

    monkeypatch.setattr(registry_reader, "HopReader", Counting)
    wanted = np.array([1, PREPARED_AT, 6, 9, 40], np.int64)
    assert [offset for offset, _ in read_changes(filled, 0, 0, 9, wanted)] == [1, 6]
    assert set(decoded) <= {1, PREPARED_AT, 6, 9}


def test_none_wanted_is_none_read(filled: MemoryLog) -> None:
    assert list(read_changes(filled, 0, 0, 10, np.empty(0, np.int64))) == []
    assert registry_reader._at(list[Record](), np.array([3])) == []


@pytest.mark.parametrize("gone", [set(), {4, 9, 10}])
def test_of_records_with_and_without_gaps_those_wanted_are_taken(gone: set[int]) -> None:
    records = [
        Record(topic=REGISTRY, partition=0, offset=offset, timestamp_ms=0, key=None, value=b"")
        for offset in range(3, 12)
        if offset not in gone
    ]
    wanted = np.array([1, 3, 4, 8, 11, 40])
    taken = [each.offset for each in registry_reader._at(records, wanted)]
    assert taken == [offset for offset in (3, 4, 8, 11) if offset not in gone]
