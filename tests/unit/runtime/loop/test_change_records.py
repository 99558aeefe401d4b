"""Records of the registry that are read as columns, against the same read one by one."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from sirocco.codec.hops import HOPS, encode, key_of
from sirocco.model.query import digest_of_query, parse_query, query_handle
from sirocco.protocol.contract.effects import Entry
from sirocco.protocol.contract.messages import NO_REVISION, REGISTRY, Change
from sirocco.protocol.contract.plain_queries import ChangeRecords, Removals
from sirocco.runtime.loop.hops import COLUMN_RECORDS_MIN, DeadLetter, HopReader, HopWriter
from sirocco.transport.calls import METHOD_HEADER
from sirocco.transport.log import Record, TopicSpec
from sirocco.transport.memory_log import MemoryLog

_HEADERS = ((METHOD_HEADER, HOPS[Change].method_path.encode()),)


def _change(kind: str, name: str) -> Change:
    query, digest = None, 0
    if kind != "removal":
        text = "a b" if kind == "plain" else "a OR b"
        query = parse_query({"id": name, "kind": "range", "mode": "continuous", "text": text})
        digest = digest_of_query(query, "s")
    return Change(
        handle=query_handle(name),
        query=query,
        subscriber="" if query is None else "s",
        start_ms=5,
        expected_revision=NO_REVISION,
        digest=digest,
        epoch=3,
    )


def _records(kinds: list[str]) -> list[Record]:
    records = []
    for offset, kind in enumerate(kinds, 100):
        change = _change(kind, f"q{offset}")
        value = encode(change)[1].SerializeToString()
        records.append(Record(REGISTRY, 1, offset, 9, key_of(change), value, _HEADERS))
    return records


def _read(records: list[Record], *, in_columns: bool) -> list[Entry]:
    def refused(letter: DeadLetter) -> None:
        raise AssertionError(letter)

    return HopReader(refused, in_columns=in_columns).entries(records)


def _singly(entries: list[Entry]) -> list[tuple[int, object]]:
    found: list[tuple[int, object]] = []
    for entry in entries:
        if isinstance(entry.message, ChangeRecords):
            offsets, changes = entry.message.offsets.tolist(), entry.message.changes
            assert entry.offset == offsets[0]
            assert len(offsets) >= COLUMN_RECORDS_MIN
            found += [(offset, changes.change(row)) for row, offset in enumerate(offsets)]
        else:
            found.append((entry.offset, entry.message))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_runs_of_a_kind_are_columns_and_all_stay_in_order(seed: int) -> None:
    dice = random.Random(seed)
    kinds: list[str] = []
    for _ in range(12):
        kind = dice.choice(("plain", "removal", "other"))
        kinds += [kind] * dice.choice((1, 3, COLUMN_RECORDS_MIN, 20))
    records = _records(kinds)
    entries = _read(records, in_columns=True)
    assert _singly(entries) == _singly(_read(records, in_columns=False))


@pytest.mark.parametrize("seed", range(5))
def test_what_a_turn_has_no_time_for_is_left_in_order(seed: int) -> None:
    dice = random.Random(seed)
    kinds: list[str] = []
    for _ in range(12):
        kind = dice.choice(("plain", "removal", "other", "other"))
        kinds += [kind] * dice.choice((1, 3, COLUMN_RECORDS_MIN, 20))
    left = records = _records(kinds)
    # Each look at the clock takes one second.
    ticks = itertools.count()
    reader = HopReader(lambda letter: None, in_columns=True, cpu_s=lambda: float(next(ticks)))
    found: list[tuple[int, object]] = []
    turns = 0
    while left:
        entries, left = reader.entries_within(left, 2.0)
        assert entries
        found += _singly(entries)
        turns += 1
    assert found == _singly(_read(records, in_columns=False))
    assert kinds.count("other") / 20 < turns < len(records)


def test_removals_are_one_entry() -> None:
    (entry,) = _read(_records(["removal"] * 20), in_columns=True)
    assert isinstance(entry.message, ChangeRecords)
    assert isinstance(entry.message.changes, Removals)


def test_few_records_between_others_are_read_singly() -> None:
    kinds = ["removal", "plain"] * 20
    entries = _read(_records(kinds), in_columns=True)
    assert [type(entry.message) for entry in entries] == [Change] * 40


def test_what_is_appended_together_has_the_keys_of_single_changes() -> None:
    changes = [_change("removal", f"q{n}") for n in range(9)]
    numbers = [np.full(len(changes), number, np.int64) for number in (5, NO_REVISION, 3)]
    removals = Removals(np.array([change.handle for change in changes], np.uint64), *numbers)
    log = MemoryLog()
    log.create_topics([TopicSpec(REGISTRY, 2)])
    appends = HopWriter(log.producer("p"), lambda *_: None).append_changes(1, removals)
    assert appends.more()
    consumer = log.consumer("c")
    consumer.assign({(REGISTRY, 1): 0})
    records = consumer.poll(20, 0.0)
    assert [record.key for record in records] == [key_of(change) for change in changes]
    values = [encode(change)[1].SerializeToString() for change in changes]
    assert [record.value for record in records] == values
