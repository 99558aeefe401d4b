"""The costs of an evaluator's work: CPU times of the real code, measured at the start.

A slot of the workload's own queries takes records of the workload's own objects, through all work
of
an evaluator: record read, matched, stored, counted by leaf, found pairs written. Three numbers are
fitted to slots with few and with many queries, and to objects that meet few and many of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.schemes.queries import Queries
from benchmarks.schemes.streams import Stream
from benchmarks.schemes.timing import seconds_of
from sirocco.codec.checkpoint import read_state, write_state
from sirocco.codec.hops import encode, read_record
from sirocco.codec.slices import read_slice, write_slice
from sirocco.index.store.store import StoreLimits
from sirocco.model.objects import ObjectColumns
from sirocco.model.term_hashing import SECRET_BYTES, TermHashing
from sirocco.model.text import TermColumns
from sirocco.protocol.contract.columns import EventColumns, QueryNames
from sirocco.protocol.contract.messages import Installed, Message, Routed
from sirocco.protocol.contract.positions import Intervals, position_of
from sirocco.protocol.evaluator.load.leaf_counts import LeafCounts
from sirocco.protocol.evaluator.reports.match_records import Report
from sirocco.protocol.evaluator.reports.partial_records import founds
from sirocco.protocol.evaluator.slot.checkpoint import restore_slot, slot_state
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.schemes.map.map import WORLD, Leaf, PartitionMap

# About the objects of one poll.
BATCH = 1_000
PARTIALS = 2
# Shares of a workload's queries in the measured slots.
SHARES = (0.02, 0.25, 1.0)
PASSES = 3
# Under a secret, as in a cluster: the terms of what is loaded are numbered anew.
HASHING = TermHashing("5a" * SECRET_BYTES)
SUBSCRIBERS = tuple(f"subscriber-{number}" for number in range(8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """CPU seconds of one core.

    Attributes:
        object_s: Of an object in a slot without queries.
        probe_s: More for each query in the slot: longer lists to search, colder caches.
        hit_s: Of each query that an object meets.
        insert_s: Of a query that is new in a slot: registered, or copied for a change of the map.
        repeat_s: Of a query that a change of the map sends to a slot that holds it already.
        remove_s: Of a query that leaves a slot.
        save_s: Of a query in a checkpoint that is written.
        load_s: Of a query in a checkpoint that is loaded.
        slice_s: Of a stored object in a slice that the next owner of a slot loads.
        query_bytes: Memory of a standing query.
        object_bytes: Of an object as published, in `intake`.
        error_share: Mean relative error of the fit of the first three.
    """

    object_s: float
    probe_s: float
    hit_s: float
    insert_s: float
    repeat_s: float
    remove_s: float
    save_s: float
    load_s: float
    slice_s: float
    query_bytes: float
    object_bytes: float
    error_share: float

    def taking_s(
        self, objects: NDArray[np.float64], queries: NDArray[np.float64], hits: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Returns the CPU seconds of taking objects, by slot.

        Args:
            objects: f8[slots].
            queries: f8[slots], standing queries.
            hits: f8[slots], pairs of the objects.
        """
        seconds: NDArray[np.float64] = objects * (self.object_s + self.probe_s * queries)
        return seconds + hits * self.hit_s


@dataclass(frozen=True, slots=True)
class _Taken:
    """The measured work of one slot, by object."""

    queries: int
    hits: float
    seconds: float


def measure(groups: list[tuple[Stream, Queries]], seed: int) -> Costs:
    """Measures the costs.

    Args:
        groups: Objects, and the queries among them.
        seed: For the choice of queries.
    """
    rng = np.random.default_rng(seed)
    taken: list[_Taken] = []
    for stream, queries in groups:
        records = [write(record) for record in _records(stream)]
        for share in SHARES:
            some = np.sort(rng.permutation(len(queries))[: max(1, int(share * len(queries)))])
            taken.append(_taken(records, queries.take(some), len(stream)))
    object_s, probe_s, hit_s, error = _fitted(taken)
    stream, queries = groups[0]
    size = sum(len(record[1]) for record in map(write, _records(stream))) / len(stream)
    insert_s, repeat_s, remove_s, save_s, load_s, query_bytes = _query_costs(queries)
    return Costs(
        object_s=object_s,
        probe_s=probe_s,
        hit_s=hit_s,
        insert_s=insert_s,
        repeat_s=repeat_s,
        remove_s=remove_s,
        save_s=save_s,
        load_s=load_s,
        slice_s=_slice_cost(stream),
        query_bytes=query_bytes,
        object_bytes=size,
        error_share=error,
    )


def write(message: Message) -> tuple[str, bytes]:
    """Returns the method and the bytes of a record."""
    path, request = encode(message)
    return path, request.SerializeToString()


def _taken(records: list[tuple[str, bytes]], queries: Queries, objects: int) -> _Taken:
    best, hits = float("inf"), 0
    for _ in range(PASSES):
        slot, counts = _slot(), LeafCounts()
        counts.use(_one_leaf())
        slot.take([(0, _installed(queries, np.arange(len(queries))))])
        seconds, hits = seconds_of(partial(_take_all, slot, counts, records))
        best = min(best, seconds)
    return _Taken(len(queries), hits / objects, best / objects)


def _take_all(slot: Slot, counts: LeafCounts, records: list[tuple[str, bytes]]) -> int:
    """Takes records of a slot through to records for mergers; returns the hits."""
    hits = 0
    for path, value in records:
        message = read_record(path, value)
        assert isinstance(message, Routed)
        reports = slot.take([(slot.offset, message)])
        for report in reports:
            if isinstance(report, Report):
                hits += len(report.object_rows)
                if report.batch is not None:
                    counts.take(slot.number, report.batch, report.object_rows)
        for _, found in founds(reports):
            write(found)
        slot.past.manifest.saved_seq = slot.past.store.next_seq - 1
        while (job := slot.past.next_job()) is not None:
            slot.past.worked(job())
    return hits


def _fitted(taken: list[_Taken]) -> tuple[float, float, float, float]:
    """Returns the least squares of relative errors; none of the three is below zero."""
    rows = np.array([[1.0, each.queries, each.hits] for each in taken])
    seconds = np.array([each.seconds for each in taken])
    scaled = rows / seconds[:, None]
    kept = [0, 1, 2]
    while True:
        found = np.linalg.lstsq(scaled[:, kept], np.ones(len(taken)), rcond=None)[0]
        if (found >= 0).all():
            break
        kept.remove(kept[int(found.argmin())])
    fitted = np.zeros(3)
    fitted[kept] = found
    error = float(np.abs(rows @ fitted / seconds - 1).mean())
    return float(fitted[0]), float(fitted[1]), float(fitted[2]), error


def _query_costs(queries: Queries) -> tuple[float, float, float, float, float, float]:
    """Returns CPU seconds of a query: new, repeated, removed, saved, loaded; and its bytes."""
    count, best = len(queries), np.full(5, np.inf)
    size = 0.0
    new = write(_installed(queries, np.arange(count)))
    again = write(_installed(queries, np.arange(count), copied_at=count))
    removed = write(_removed(count))
    for _ in range(PASSES):
        slot = _slot()
        reported = [seconds_of(partial(_tell, slot, each))[0] for each in (new, again)]
        size = slot.standing.bytes_total / count
        saved_s, state = seconds_of(lambda slot=slot: write_state(slot_state(slot, 0, ())))
        loaded_s, _ = seconds_of(lambda state=state: restore_slot(_slot(), read_state(state), ()))
        removed_s = seconds_of(partial(_tell, slot, removed))[0]
        best = np.minimum(best, [*reported, removed_s, saved_s, loaded_s])
    return (*(best / count).tolist(), size)


def _slice_cost(stream: Stream) -> float:
    """Returns CPU seconds of a stored object when its slice is loaded."""
    rows = max(1, len(stream) // 4)
    slot = Slot(0, PARTIALS, StoreLimits(active_rows=rows), HASHING)
    slot.open(0, 0, 1, 0)
    for offset, record in enumerate(_records(stream)):
        slot.take([(offset, record)])
    while (job := slot.past.next_job()) is not None:
        slot.past.worked(job())
    blobs = [bytes(write_slice(each)) for each in slot.past.store.slices]
    objects = sum(each.last_seq - each.first_seq + 1 for each in slot.past.store.slices)
    seconds = min(
        seconds_of(lambda: [read_slice(blob, HASHING) for blob in blobs])[0] for _ in range(PASSES)
    )
    return seconds / objects


def _tell(slot: Slot, record: tuple[str, bytes]) -> None:
    message = read_record(*record)
    assert isinstance(message, Installed)
    slot.take([(slot.offset, message)])


def _slot() -> Slot:
    slot = Slot(0, PARTIALS)
    slot.open(0, 0, 1, 0)
    return slot


def handles_of(rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Returns a hash for the number of each query (splitmix64), as handles are hashes of ids."""
    mixed = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _installed(
    queries: Queries, rows: NDArray[np.int64], copied_at: int | None = None
) -> Installed:
    count = len(rows)
    ids = [f"query-{row}".encode() for row in rows.tolist()]
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in ids])]).astype(np.int64)
    names = QueryNames(
        handles_of(rows),
        np.frombuffer(b"".join(ids), np.uint8),
        offsets,
        (rows % len(SUBSCRIBERS)).astype(np.uint32),
        SUBSCRIBERS,
    )
    none = np.empty(0, np.uint64), np.empty(0, np.int64)
    reported = Installed.plain(0, 0, names, np.arange(count), queries.rows(), None, *none)
    if copied_at is None:
        return reported
    columns = {name: getattr(reported, name) for name in Installed.__slots__}
    return Installed(**{**columns, "copied_at": copied_at})


def _removed(count: int) -> Installed:
    none = np.empty(0, np.int64)
    empty = Queries(none.astype(np.uint8), np.empty((0, 4)), np.zeros(1, np.int64),
                    np.zeros(1, np.int64), none.astype(np.uint64))  # fmt: skip
    names = QueryNames(none.astype(np.uint64), none.astype(np.uint8), np.zeros(1, np.int64),
                       none.astype(np.uint32), SUBSCRIBERS)  # fmt: skip
    rows = np.arange(count)
    return Installed.plain(0, 0, names, none, empty.rows(), None, handles_of(rows), rows)


def _records(stream: Stream) -> list[Routed]:
    """Returns the stream as the records of one slot."""
    found = []
    for number, begin in enumerate(range(0, len(stream), BATCH)):
        part = stream.take(np.arange(begin, min(begin + BATCH, len(stream))))
        low, high = position_of(number), position_of(number + 1)
        count = len(part)
        found.append(
            Routed(
                map_version=1,
                intervals=Intervals.of([(0, low, high, number)]),
                objects=_plain(part.columns),
                events=EventColumns(np.zeros(count, np.uint64), part.keys, np.full(count, number)),
                positions=low + np.arange(count),
                interval_rows=np.zeros(count, np.uint32),
                terms=terms_of(part),
            )
        )
    return found


def _plain(objects: ObjectColumns) -> ObjectColumns:
    columns = {name: getattr(objects, name) for name in ObjectColumns.__slots__}
    columns["attributes"] = np.empty(0, np.uint8)
    columns["attribute_offsets"] = np.zeros(len(objects) + 1, np.int64)
    return ObjectColumns(**columns)


def terms_of(stream: Stream) -> TermColumns:
    """Returns the stream's terms as routers send them, each once."""
    lengths = np.diff(stream.term_offsets).astype(np.int32)
    once = np.ones(len(stream.terms), np.uint16)
    return TermColumns(stream.terms, stream.term_offsets, lengths, once)


def _one_leaf() -> PartitionMap:
    one, zero = np.ones(1), np.zeros(1, np.int32)
    return PartitionMap(
        version=1,
        scheme="uniform-grid",
        world=WORLD,
        leaves=(Leaf(0, WORLD),),
        text_nodes=(),
        slot_of_leaf=zero,
        load_of_leaf=one,
        slots=1,
    )
